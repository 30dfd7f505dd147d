"""The process group of a run's ranks, and how they agree to stop at one common step."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import TypeVar

import torch
import torch.distributed as torch_dist
from torch import Tensor

Plain = TypeVar("Plain")

# How long the ranks of a run wait for each other at its start.
RENDEZVOUS_S = 300

# Of DDP: buffers are not sent around at every step. torch 2.15 gave the setting another name, and
# warns of the old one (by the new one ranks begin with those of rank 0; they are equal then in any
# case).
_NAMES = signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
BUFFERS_STAY = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """This rank's place among the ranks of its run."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_primary(self) -> bool:
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all ranks; a float64 tensor on the CPU, so no device waits."""
        if self.world_size > 1:
            torch_dist.all_reduce(values, group=_cpu_group())
        return values

    def sum_on_device(self, values: Tensor) -> Tensor:
        """Return the sum over all ranks of a tensor on the device that is trained on."""
        if self.world_size > 1:
            torch_dist.all_reduce(values)
        return values

    def gather(self, values: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the rows of all ranks in the order of ranks, [sum of sizes, D].

        Args:
            values: [rows, D], of this rank.
            sizes: rows of each rank.
        """
        if self.world_size == 1:
            return values
        padded = values.new_zeros(max(sizes), values.shape[1])
        padded[: len(values)] = values
        found = [torch.empty_like(padded) for _ in sizes]
        torch_dist.all_gather(found, padded)
        return torch.cat([rows[:size] for rows, size in zip(found, sizes, strict=True)])

    def broadcast(self, values: list[Tensor]) -> None:
        """Give every rank what rank 0 holds."""
        if self.world_size > 1:
            for value in values:
                torch_dist.broadcast(value, src=0)

    def share(self, value: list[str]) -> list[str]:
        """Return rank 0's value; every rank must call."""
        if self.world_size == 1:
            return value
        # As text: torch's own way would unpickle whatever came over the network.
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        size = torch.tensor([data.numel()])
        torch_dist.broadcast(size, src=0, group=_cpu_group())
        data = data if self.is_primary else torch.empty(int(size), dtype=torch.uint8)
        torch_dist.broadcast(data, src=0, group=_cpu_group())
        found: list[str] = json.loads(data.numpy().tobytes())
        return found

    def collect(self, rows: list[Plain], wanted: Callable[[Plain], bool]) -> list[Plain]:
        """Return the rows of all ranks that this one wants, in the order of ranks.

        Args:
            rows: of this rank; JSON can hold them.
            wanted: whether this rank wants a row.
        """
        if self.world_size == 1:
            return [row for row in rows if wanted(row)]
        # As text: torch's own way would unpickle whatever came over the network.
        data = torch.frombuffer(bytearray(json.dumps(rows).encode()), dtype=torch.uint8)
        sizes = torch.zeros(self.world_size, dtype=torch.float64)
        sizes[self.rank] = len(data)
        lengths = [int(size) for size in self.sum(sizes).tolist()]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(data)] = data
        parts = [torch.empty_like(padded) for _ in lengths]
        torch_dist.all_gather(parts, padded, group=_cpu_group())
        return [
            row
            for part, length in zip(parts, lengths, strict=True)
            for row in json.loads(part[:length].numpy().tobytes())
            if wanted(row)
        ]

    def barrier(self) -> None:
        """Wait for every rank."""
        if self.world_size > 1:
            torch_dist.barrier(group=_cpu_group())


def in_ddp(model: torch.nn.Module, group: Group) -> torch.nn.parallel.DistributedDataParallel:
    """Return the model with its gradients averaged over the ranks."""
    on_gpu = [group.device] if group.device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(
        model, device_ids=on_gpu, gradient_as_bucket_view=True, **BUFFERS_STAY
    )


_CPU_GROUP: list[torch_dist.ProcessGroup | None] = [None]


def _cpu_group() -> torch_dist.ProcessGroup | None:
    return _CPU_GROUP[0]


def join(
    rank: int,
    world_size: int,
    *,
    device: torch.device,
    port: int,
    listener: int | None,
    key: str,
    is_alone: bool,
    timeout_s: float,
) -> Group:
    """Join the run's process group.

    Args:
        rank: this rank.
        world_size: how many there are.
        device: what this rank trains on; gloo serves the CPU, nccl a GPU.
        port: on this node's loopback interface, that leads to rank 0's store.
        listener: rank 0's listening socket, bound by the agent, so that no port can be taken
            meanwhile.
        key: the attempt's. Whoever does not know it finds nothing in the store.
        is_alone: whether all ranks are on this node.
        timeout_s: how long a rank waits for the others in a collective operation, such as while one
            writes a checkpoint.
    """
    if world_size > 1:
        server = torch_dist.TCPStore(
            "127.0.0.1",
            port,
            world_size,
            is_master=rank == 0,
            timeout=timedelta(seconds=RENDEZVOUS_S),
            master_listen_fd=listener,
            # libuv's server takes a listening socket only from torch 2.4 on, and not on every
            # build.
            use_libuv=False,
        )
        store = torch_dist.PrefixStore(key, server)
        timeout = timedelta(seconds=timeout_s)
        backend = "nccl" if device.type == "cuda" else "gloo"
        if is_alone:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch_dist.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=timeout
        )
        _CPU_GROUP[0] = (
            torch_dist.new_group(backend="gloo", timeout=timeout) if backend == "nccl" else None
        )
    return Group(rank=rank, world_size=world_size, device=device)


class StopVote:
    """Agreement on a common step to stop at, and to save at, without a device synchronisation per
    step.

    Each step starts a reduction of two numbers on the CPU and looks at the result of the one
    before, which has long arrived; so all ranks see a wish after the same step, at most one step
    late.
    """

    def __init__(
        self,
        group: Group,
        wants_stop: Callable[[], bool],
        wants_save: Callable[[], bool] = lambda: False,
    ) -> None:
        self._group = group
        self._wants_stop = wants_stop
        self._wants_save = wants_save
        self._pending: tuple[object, Tensor] | None = None
        # Stays true until the one who saved says so.
        self.save_due = False

    def agreed(self) -> bool:
        """Ask once per step, on every rank; return whether to stop."""
        wish = self._wants_stop()
        if self._group.world_size == 1:
            self.save_due = self.save_due or self._wants_save()
            return wish
        seen = False
        if self._pending is not None:
            work, votes = self._pending
            work.wait()  # type: ignore[attr-defined]
            seen = bool(votes[0].item())
            self.save_due = self.save_due or bool(votes[1].item())
        # Not asked for again while it is due, or one wish would be seen twice.
        votes = torch.tensor([float(wish), float(not self.save_due and self._wants_save())])
        work = torch_dist.all_reduce(
            votes, op=torch_dist.ReduceOp.MAX, group=_cpu_group(), async_op=True
        )
        self._pending = (work, votes)
        return seen

    def settle(self) -> None:
        """Finish the reduction that is still under way."""
        if self._pending is not None:
            self._pending[0].wait()  # type: ignore[attr-defined]
            self._pending = None

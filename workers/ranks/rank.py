"""One rank of one run: what the template becomes after it forked."""

import faulthandler
import os
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...jobs.config.wheels import is_built_for, remedy
from ...jobs.documents import to_plain
from ...jobs.run.states import ExitCode, FailureClass
from ...jobs.workspace.lineage import candidate_at
from ...jobs.workspace.paths import RunFolder
from ..errors import WheelError
from ..orders import Order, RankOrder
from ..pipes import LineWriter, StopFlag, write_log_line
from ..process import DUMP_SIGNAL
from ..reports import RankError
from ..training.run_log import RunLog

if TYPE_CHECKING:
    import torch

    from ...jobs.run.spec import RunSpec
    from ..training.loop import Training
    from ..training.plan import TrainingPlan

# What a process takes of a GPU beside its tensors: the CUDA context and the libraries' workspaces.
CONTEXT_BYTES = 1 << 30


def run_rank(order: RankOrder, *, events: int, control: int, listener: int | None) -> int:
    """Train as the order says; return the exit code.

    Args:
        order: what the agent sent: spec, place in the group, paths, settings.
        events: where events go.
        control: where the stop byte comes from.
        listener: rank 0's listening socket.
    """
    began = time.monotonic()
    writer = LineWriter(events)
    faulthandler.register(DUMP_SIGNAL, file=sys.stderr, all_threads=True, chain=False)
    log = RunLog(write_log_line) if order.rank == 0 else None
    try:
        completed = _train(order, writer, StopFlag(control), listener, log)
    except BaseException as error:
        from .failure import classify, describe, exit_code, signature

        failure = FailureClass.USER_ERROR if isinstance(error, SystemExit) else classify(error)
        text = describe(error)
        print(text, file=sys.stderr, flush=True)
        if log is not None:
            log.end(f"failed: {failure}")
        report = RankError(
            failure=failure,
            signature=signature(error),
            error=text,
            rank=order.rank,
            monotonic=time.monotonic(),
            seconds=time.monotonic() - began,
        )
        writer.send("error", **to_plain(report))
        return exit_code(failure)
    return ExitCode.COMPLETED if completed else ExitCode.STOPPED


def _train(
    mine: RankOrder,
    writer: LineWriter,
    stop: StopFlag,
    listener: int | None,
    log: RunLog | None,
) -> bool:
    order = mine.order
    if mine.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(mine.gpus)
    if mine.cores:
        # Before anything starts threads or processes: these inherit it. It fails where a scheduler
        # has taken cores back; the run then trains on those that are left.
        with suppress(OSError):
            os.sched_setaffinity(0, mine.cores)
    import torch

    from ..training.group import join
    from ..training.loop import Training

    torch.set_num_threads(order.threads)
    device = _gpu(mine) if order.device == "cuda" else torch.device("cpu")
    spec = _spec(order)
    run = RunFolder(Path(order.spec).parent)
    key = run.key(order.attempt).read_text() if order.world_size > 1 else ""
    group = join(
        mine.rank,
        order.world_size,
        device=device,
        port=order.port if order.nodes == 1 else _port_to_rank_0(mine, key),
        listener=listener,
        key=key,
        is_alone=order.nodes == 1,
        timeout_s=order.collective_s,
    )
    plan = _plan(mine, run)
    if log is not None:
        resumed = None if plan.resume is None else candidate_at(plan.resume)
        log.start(spec, world_size=group.world_size, attempt=order.attempt, resumed=resumed)
        if mine.note:
            log.note(mine.note)
    training = Training(spec, plan, group, report=writer.send, wants_stop=stop, log=log)
    completed = training.run()
    group.barrier()
    if log is not None:
        log.end(_how_it_ended(training, completed))
    return completed


def _spec(order: Order) -> "RunSpec":
    """Return what the run is.

    Raises:
        OtherNumerics: another version of vtjobs would have computed it otherwise.
    """
    from ...jobs.run.spec import NUMERICS, RunSpec
    from ..errors import OtherNumerics

    spec = RunSpec.parse(Path(order.spec).read_text())
    if spec.numerics != NUMERICS:
        raise OtherNumerics(
            f"this run has numerics {spec.numerics}, and this version of vtjobs computes with"
            f" numerics {NUMERICS}: its result would not be the run's. Submit the grid again for"
            " new runs, or train this one with the version that submitted it"
        )
    return spec


def _port_to_rank_0(mine: RankOrder, key: str) -> int:
    """Return a port of this node by which rank 0 is reached, which may run on another one."""
    from .gate import Passage, reach
    from .rendezvous import interface_of

    order = mine.order
    host, own = reach(order.hosts, order.gate, key)
    if interface := interface_of(own):
        # By itself gloo would take the interface that the host's name resolves to, which may be the
        # loopback's.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    is_on_rank_0s_node = mine.rank == mine.local_rank
    return order.port if is_on_rank_0s_node else Passage((host, order.gate), key=key).port


def _plan(mine: RankOrder, run: RunFolder) -> "TrainingPlan":
    from ...jobs.run.spec import RunSpec
    from ..training.plan import TrainingPlan

    order = mine.order
    return TrainingPlan(
        run_id=order.run_id,
        folder=Path(order.folder),
        data_root=Path(order.data_root),
        paths=order.paths,
        resume=Path(order.resume) if order.resume else None,
        init=Path(order.init) if order.init else None,
        parent=RunSpec.parse(Path(order.parent).read_text()) if order.parent else None,
        checkpoint_every_s=order.checkpoint_every_s,
        evaluate_every=order.evaluate_every,
        record_depth=order.record_depth,
        sets=order.sets,
        metrics=order.metrics,
        micro_split=order.micro_split,
        workers=mine.workers,
        decoded=Path(order.decoded) if order.decoded else None,
        decoded_bytes=order.decoded_bytes,
        decoders=mine.decoders,
        superseded=partial(_is_superseded, run, order.attempt),
        origin=order.origin,
    )


def _gpu(mine: RankOrder) -> "torch.device":
    """Return this rank's GPU, which is then the current one."""
    import torch

    torch.cuda.set_device(mine.local_rank)
    device = torch.device("cuda", mine.local_rank)
    capability = "{}.{}".format(*torch.cuda.get_device_capability(device))
    check_wheel(torch.cuda.get_device_name(device), capability, torch.cuda.get_arch_list())
    if mine.order.per_gpu > 1:
        keep_to_share(device, mine.order.per_gpu)
    return device


def check_wheel(name: str, capability: str, architectures: list[str]) -> None:
    """Look whether torch has kernels for a GPU, before its first one is missing.

    Raises:
        WheelError: it has none; the message says what to install.
    """
    if not is_built_for(capability, architectures):
        raise WheelError(
            f"this build of torch has no kernels for {name} (compute capability {capability}), only"
            f" for {', '.join(architectures)}. {remedy(capability)}"
        )


def keep_to_share(device: "torch.device", runs: int) -> None:
    """Let torch take no more of a GPU's memory than this run's part.

    A run that needs more runs out of memory by itself, and takes none from its neighbours.
    """
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(memory_share(total, runs), device)


def memory_share(total: int, runs: int) -> float:
    """Return the fraction of a GPU's memory that one of several runs may take for tensors.

    Each process has a CUDA context beside its tensors, which torch does not count.

    Args:
        total: bytes of the GPU.
        runs: how many share it.
    """
    return max(0.1, 1 - runs * CONTEXT_BYTES / total) / runs


def _how_it_ended(training: "Training", completed: bool) -> str:
    if completed:
        return "completed"
    place = f"step {training.global_step} of {training.total_steps}"
    return f"stopped at {place}, checkpoint saved"


def _is_superseded(run: RunFolder, attempt: int) -> bool:
    try:
        return run.highest_claim() > attempt
    except OSError:
        # Not known at this moment: nothing is removed.
        return True

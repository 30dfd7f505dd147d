"""The ranks of one attempt on this node: their processes, pipes, logs and signs of life."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from ...jobs.config.shared_memory import Fitted
from ...jobs.workspace.journal import Line
from ..orders import Order, RankOrder
from ..pipes import STOP, CappedLog, LineReader
from ..process import DUMP_SIGNAL, send_signal
from .hang_watch import COMPILE_FACTOR, Pulse
from .lanes import Lane
from .rank_process import RankProcess
from .template_client import Forge

LOG_CAP_BYTES = int(os.environ.get("VTJOBS_LOG_CAP_BYTES", str(64 << 20)))


class RankGroup:
    """The ranks that an agent has forked for an attempt.

    Args:
        logs: the folder of their logs.
        hang_s: how long they may at least be silent, in seconds.
        mirror: whether what they print is shown by the agent too.
    """

    def __init__(self, logs: Path, *, hang_s: float, mirror: bool) -> None:
        self.processes: list[RankProcess] = []
        self._logs_folder = logs
        self._mirror = mirror
        self._events: dict[int, LineReader] = {}
        self._logs: dict[int, CappedLog] = {}
        self._pulse = Pulse(hang_s)
        self._is_stopping = False
        self._is_dumped = False

    def start(
        self,
        forge: Forge,
        order: Order,
        *,
        first: int,
        count: int,
        lane: Lane,
        processes: Fitted,
        listener: socket.socket | None,
        now: float,
    ) -> None:
        """Have them begin.

        Args:
            forge: of this agent.
            order: what all of them are to do.
            first: the lowest rank on this node.
            count: how many run here.
            lane: where they run, with the GPUs that they share.
            processes: of each one, that make its images.
            listener: where rank 0 is met; for it alone.
            now: monotonic seconds.
        """
        for local in range(count):
            rank = first + local
            own = RankOrder(
                order=order,
                rank=rank,
                local_rank=local,
                gpus=tuple(lane.gpus),
                cores=lane.cores_of(local),
                workers=processes.workers,
                decoders=processes.decoders,
                note=processes.note,
            )
            met_at = listener if rank == 0 else None
            process = forge.start(own, lane=lane.index, listener=met_at)
            self.processes.append(process)
            self._events[rank] = LineReader(process.events)
            path = self._logs_folder / f"rank-{rank}.log"
            self._logs[rank] = CappedLog(
                process.log, path, cap_bytes=LOG_CAP_BYTES, mirror=self._mirror
            )
            self._pulse.begin(rank, now)
            if self._is_stopping:
                # The signal came while the ranks were being forked.
                os.write(process.control, STOP)

    @property
    def handles(self) -> list[int]:
        """The pipes that wake the agent."""
        readers = [reader.handle for reader in self._events.values() if reader.open]
        return readers + [log.handle for log in self._logs.values() if log.open]

    @property
    def running(self) -> list[RankProcess]:
        """Those that have not ended."""
        return [rank for rank in self.processes if rank.status is None]

    @property
    def cpu_before_s(self) -> dict[int, float]:
        """The processes that run -> the CPU seconds that each had spent on earlier runs."""
        return {rank.pid: rank.cpu_before_s for rank in self.running if rank.pid is not None}

    @property
    def are_gone(self) -> bool:
        """Whether there were ranks, and all have ended."""
        return bool(self.processes) and not self.running

    def listen(self, now: float) -> Iterator[tuple[int, Line]]:
        """Yield what they have reported since, with the rank, and write down what they printed."""
        for rank, reader in self._events.items():
            if reader.open:
                for event in reader.read():
                    compiles = event.get("phase") == "compile"
                    self._pulse.beat(rank, now, COMPILE_FACTOR if compiles else 1)
                    yield rank, event
        for log in self._logs.values():
            if log.open:
                log.pump()

    def stop(self) -> None:
        """Have them stop at a common step and save."""
        self._is_stopping = True
        for rank in self.processes:
            try:
                os.write(rank.control, STOP)
            except OSError:
                continue

    def silence(self, now: float) -> float:
        """Return for how many seconds one that runs has been silent; 0 where that is usual."""
        waiting = self.running
        return self._pulse.silence((rank.rank for rank in waiting), now) if waiting else 0.0

    def dump_stacks(self) -> bool:
        """Have those that run write where they are into their logs; False where that was asked
        before.
        """
        if self._is_dumped:
            return False
        self._is_dumped = True
        for rank in self.running:
            send_signal(rank.pid, DUMP_SIGNAL)
            # A stopped process takes no other signal before it is let go on.
            send_signal(rank.pid, signal.SIGCONT)
        return True

    def kill(self) -> None:
        """End those that run, with their loader workers."""
        for rank in self.running:
            rank.kill()

    def died_with_template(self) -> None:
        """Take note that the fork server took them along."""
        for rank in self.running:
            rank.status = -signal.SIGKILL

    def close(self) -> None:
        """Close their pipes and logs."""
        for reader in self._events.values():
            reader.close()
        for log in self._logs.values():
            log.close()
        for rank in self.processes:
            os.close(rank.control)

"""Ranks as real processes, forked from one warm process, that stop or die just where a test says."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STOPPED = 75


@dataclass
class Ended:
    """What became of the ranks of one attempt."""

    statuses: list[int]
    """Exit code, or minus the signal, of each rank."""
    text: str
    """Their stderr."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """What rank 0 reported."""


class Ranks:
    """The warm process, seen from a test."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.support.ranks"]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def train(
        self,
        spec: Any,
        folder: Path,
        *,
        world_size: int = 1,
        resume: Path | None = None,
        **more: Any,
    ) -> Ended:
        """Run one attempt to its end.

        Args:
            spec: the RunSpec.
            folder: for its checkpoints; `<folder>-<rank>.err` takes a rank's stderr.
            world_size: number of ranks.
            resume: the checkpoint to go on from.
            more: `decoded` (a folder for decoded sets), `stop_at` (ranks wish to stop at the n-th moment, counted over steps and
                evaluation batches), `die_at` (rank `die_rank` kills itself there), `trace` (a file
                for what each step leaves), and fields of TrainingPlan.
        """
        folder.mkdir(parents=True, exist_ok=True)
        order = {
            "spec": spec.canonical(),
            "run_id": spec.run_id,
            "folder": str(folder),
            "world_size": world_size,
        }
        order |= {"resume": str(resume) if resume else None, **more}
        statuses = self._answer(order)
        text = "".join(Path(f"{folder}-{rank}.err").read_text() for rank in range(world_size))
        log = Path(f"{folder}-events.jsonl")
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return Ended(statuses, text, events)

    def _answer(self, order: dict[str, Any]) -> list[int]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            statuses: list[int] = json.loads(self.process.stdout.readline())
        except BaseException:
            # The test's time is up: the next one would be given this one's answer.
            self.close()
            self._start()
            raise
        return statuses

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def _serve() -> None:
    import timm.data
    import timm.optim
    import timm.scheduler
    import timm.utils  # noqa: F401
    import torch.nn.parallel  # noqa: F401

    from vtjobs.workers.training import loop  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(_attempt(json.loads(line))), flush=True)


def _attempt(order: dict[str, Any]) -> list[int]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    Path(f"{order['folder']}-events.jsonl").unlink(missing_ok=True)
    pids = []
    for rank in range(order["world_size"]):
        pid = os.fork()
        if pid == 0:
            _become(order, rank, listener)
        pids.append(pid)
    listener.close()
    found: dict[int, int] = {}
    kill_at = None
    while len(found) < len(pids):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            found[pid] = os.waitstatus_to_exitcode(status)
            if found[pid] not in (0, STOPPED) and kill_at is None:
                kill_at = time.monotonic() + 1.0
        elif kill_at is not None and time.monotonic() > kill_at:
            for other in set(pids) - set(found):
                os.kill(other, signal.SIGKILL)
        else:
            time.sleep(0.002)
    return [found[pid] for pid in pids]


def _become(order: dict[str, Any], rank: int, listener: socket.socket) -> None:
    code = 70
    try:
        error = os.open(f"{order['folder']}-{rank}.err", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(error, 2)
        code = _train(order, rank, listener)
    except BaseException as error:
        from vtjobs.workers.ranks.failure import classify

        print(f"class: {classify(error)}", file=sys.stderr)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _train(order: dict[str, Any], rank: int, listener: socket.socket) -> int:
    import torch

    from vtjobs.jobs.documents import from_plain
    from vtjobs.jobs.run.settings import OwnFunction
    from vtjobs.jobs.run.spec import RunSpec
    from vtjobs.workers.environment import Origin
    from vtjobs.workers.process import die_with_parent
    from vtjobs.workers.training.group import join
    from vtjobs.workers.training.loop import Training
    from vtjobs.workers.training.plan import TrainingPlan

    die_with_parent()
    torch.set_num_threads(1)
    handle, port = listener.fileno(), listener.getsockname()[1]
    world_size = order["world_size"]
    group = join(
        rank,
        world_size,
        device=torch.device("cpu"),
        port=port,
        listener=None if rank else handle,
        key="key",
        is_alone=True,
        timeout_s=300.0,
    )
    if rank or world_size == 1:
        listener.close()
    moments = 0

    def wants_stop() -> bool:
        nonlocal moments
        moments += 1
        if moments == order.get("die_at") and rank == order.get("die_rank", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return order.get("stop_at") is not None and moments >= order["stop_at"]

    def report(kind: str, **fields: Any) -> None:
        if rank == 0:
            with Path(f"{order['folder']}-events.jsonl").open("a") as stream:
                stream.write(json.dumps({"kind": kind, **fields}) + "\n")

    names = ("checkpoint_every_s", "evaluate_every", "micro_split", "workers", "paths")
    settings = {name: order[name] for name in names if name in order}
    if "decoded" in order:
        settings |= {"decoded": Path(order["decoded"]), "decoded_bytes": 1 << 40}
    settings["metrics"] = from_plain(order.get("metrics", []), tuple[OwnFunction, ...])
    plan = TrainingPlan(
        origin=Origin(world_size=world_size, threads=1, device="cpu", software={}),
        run_id=order["run_id"],
        folder=Path(order["folder"]),
        data_root=Path(order["folder"]),
        resume=Path(order["resume"]) if order["resume"] else None,
        **settings,
    )
    training = Training(
        RunSpec.parse(order["spec"]), plan, group, report=report, wants_stop=wants_stop
    )
    trace: list[dict[str, Any]] = []
    if "trace" in order:
        _watch(training, trace)
    done = training.run()
    group.barrier()
    if trace:
        torch.save(trace, f"{order['trace']}-{rank}.pt")
    return 0 if done else STOPPED


def _watch(training: Any, trace: list[dict[str, Any]]) -> None:
    """Note the running sums and the running statistics after each step."""
    step = training._one_step

    def watched() -> None:
        step()
        buffers = {name: value.clone() for name, value in training.trainee.backbone.named_buffers()}
        trace.append(
            {
                "sums": {name: float(value) for name, value in training.sums.values.items()},
                "buffers": buffers,
            }
        )

    training._one_step = watched


if __name__ == "__main__":
    _serve()

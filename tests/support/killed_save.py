"""Save a checkpoint again and again, killed at each write, fsync, rename and mkdir in turn.

Print what is left.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from vtjobs.workers.checkpoints import checkpoint
from vtjobs.workers.environment import Origin

CALLS = ("write", "fsync", "rename", "mkdir", "open", "rmdir", "unlink")


def save(folder: Path, step: int) -> None:
    """Publish a checkpoint whose weights tell its step, as a training does."""
    weights = {"weight": torch.full((64, 64), float(step)), "bias": torch.full((3,), float(step))}
    checkpoint.save(
        folder,
        run_id="run",
        epoch=0,
        step=step,
        model=weights,
        ema=weights,
        state={"step": step},
        origin=Origin(world_size=1, threads=1, device="cpu", software={}),
    )
    checkpoint.keep_newest(folder)


def _deadly(call: Callable[..., Any], countdown: list[int]) -> Callable[..., Any]:
    def killed(*args: Any, **more: Any) -> Any:
        countdown[0] -= 1
        if countdown[0] == 0:
            if call.__name__ == "write":
                # Half of what was meant to be written reaches the file.
                call(args[0], bytes(args[1])[: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **more)

    return killed


def _try(folder: Path, step: int, moment: int) -> bool:
    """Save in a process of its own that dies at the n-th call; return whether it came through."""
    pid = os.fork()
    if pid == 0:
        countdown = [moment]
        for name in CALLS:
            setattr(os, name, _deadly(getattr(os, name), countdown))
        save(folder, step)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def main() -> None:
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    for moment in range(1, 1000):
        folder = root / f"killed-at-{moment}"
        save(folder, 1)
        save(folder, 2)
        through = _try(folder, 3, moment)
        print(json.dumps({"moment": moment, "folder": str(folder), "through": through}), flush=True)
        if through:
            return


if __name__ == "__main__":
    main()

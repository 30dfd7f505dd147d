"""What the processes of a node owe each other."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
# Has a rank write the stack of every thread to its log; NCCL uses SIGUSR1.
DUMP_SIGNAL = signal.SIGRTMIN + 5


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def send_signal(pid: int | None, number: int) -> None:
    """Signal a process, if it is known and still there."""
    if pid is not None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


@contextlib.contextmanager
def hidden(package: str) -> Iterator[None]:
    """Let imports in this block find no such package, unless it is imported already.

    timm imports wandb wherever it is installed, which takes half a second and which no run needs.
    """
    if package in sys.modules:
        yield
        return
    # What Python takes for an import that is known to fail.
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]

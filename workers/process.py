"""What the processes of a node owe each other."""

import ctypes
import os
import signal

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

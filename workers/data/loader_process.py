"""What a worker process of a loader does first."""

import signal

import torch

from ..process import die_with_parent


def start_worker(_: int) -> None:
    """Leave signals to the rank, end with it, and use one thread."""
    die_with_parent()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(name, signal.SIG_IGN)
    torch.set_num_threads(1)

"""What the worker processes of all loaders have in common."""

import signal

import torch

from ..errors import DataError
from ..process import die_with_parent

# What a worker returns instead of raising it: raised, it would arrive as the text of a traceback,
# without the error number that tells a fault of the file system from a mistake.
FromWorker = DataError | OSError
FROM_WORKER = (DataError, OSError)


def start_worker(_: int) -> None:
    """Leave signals to the rank, end with it, and use one thread."""
    die_with_parent()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(name, signal.SIG_IGN)
    torch.set_num_threads(1)

"""The memory that runs of this machine's queue share."""

from ....jobs.config.host import memory_bytes
from ..base import HostMemory

FEWER = "Train fewer at a time: backend: {{local: {{slots: {runs}}}}} in the grid file"


def memory_here() -> HostMemory:
    """Return what this machine, or this container, has."""
    return HostMemory(bytes=memory_bytes(), fix=FEWER)

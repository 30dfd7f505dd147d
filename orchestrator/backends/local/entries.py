"""What lies in the files of the local queue."""

from pathlib import Path
from typing import TypeVar

from ....jobs.atomic_files import read_json, to_json, write_new
from ....jobs.documents import Document, from_plain, to_plain


class Need(Document, frozen=True, kw_only=True, omit_defaults=False):
    """An allocation that waits: `queue/TOKEN.json`."""

    created_at: float
    gpus: int
    cores: int


class ProcessIdentity(Document, frozen=True, kw_only=True):
    """What tells a process from a later one with the same number."""

    pid: int
    started: str
    """When, in clock ticks since the machine started."""
    boot: str
    """The machine's boot id."""

    @property
    def is_alive(self) -> bool:
        """Whether the process still exists."""
        return process_identity(self.pid) == self.plain

    @property
    def plain(self) -> "ProcessIdentity":
        """The identity alone."""
        return ProcessIdentity(pid=self.pid, started=self.started, boot=self.boot)


class Running(ProcessIdentity, frozen=True, kw_only=True):
    """An allocation that has an agent: `running/TOKEN.json`."""

    gpus: list[str]
    cores: int
    """0 where the allocation has GPUs."""


class End(Document, frozen=True, kw_only=True, omit_defaults=False):
    """How an allocation ended: `ended/TOKEN.json`."""

    code: int | None
    """Exit status of the agent, or minus its signal; None where nobody saw it."""
    word: str


# What a file without its content stands for: an agent that the power cut ended with it.
GONE = Running(pid=0, started="", boot="", gpus=[], cores=0)

T = TypeVar("T")


def read(path: Path, kind: type[T]) -> T | None:
    """Return what a file of the queue says, or None where it is not there.

    Raises:
        ValueError: it is damaged. Files appear whole, so a power cut has taken its content.
    """
    data = read_json(path)
    return None if data is None else from_plain(data, kind)


def write(path: Path, entry: Document) -> bool:
    """Write a file of the queue; return False where it was there."""
    return write_new(path, to_json(to_plain(entry)))


def process_identity(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process, or None where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Field 3 is the state; a zombie has ended and only waits to be reaped.
    if fields[0] == "Z":
        return None
    return ProcessIdentity(pid=pid, started=fields[19], boot=boot)

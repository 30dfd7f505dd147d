"""The journal: one append-only event file per attempt and node.

Line = CRC32 of the rest + JSON with seq.

What the lines say is in `events`. Of a run on several nodes node 0 decides: what the others write
(start, heartbeat, end) is for the agents' eyes.
"""

import json
import os
import zlib
from pathlib import Path
from typing import Any

from ..atomic_files import open_file
from ..errors import DamagedJournal
from ..values import Value
from .events import TYPES, typed

# What must survive a power cut the moment it is announced.
DURABLE = frozenset(("start", "checkpoint", "end"))
HEARTBEAT_S = 30.0
LEASE_S = 600.0
# Whoever has not been heard of for so long may be gone: heartbeats can be late.
SILENT_S = 3 * HEARTBEAT_S

# A line as JSON; `events.typed` gives it a type.
Line = dict[str, Any]


def encode(event: Line) -> bytes:
    """Return the event's line."""
    body = json.dumps(event, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def decode(line: bytes) -> Line:
    """Read one line, without its newline.

    Raises:
        ValueError: the line is damaged.
    """
    if len(line) < 10 or int(line[:8], 16) != zlib.crc32(line[9:]):
        raise ValueError("checksum mismatch")
    # Decoded here: json would guess the encoding of each line first.
    event: Line = json.loads(line[9:].decode())
    if not isinstance(event, dict):
        raise ValueError("not an event")
    return event


class Chunk(Value, frozen=True, kw_only=True):
    """What one look at a journal found behind an offset."""

    events: list[Line]
    offset: int
    """Where the next look begins: behind the last whole line."""
    tail: bytes
    """A line that is not finished; it may still grow, or its writer is dead."""


def read_from(path: Path, offset: int = 0, *, most_bytes: int = 1 << 26) -> Chunk:
    """Read the whole lines behind `offset`.

    Raises:
        DamagedJournal: a damaged line has whole lines behind it, so it is no torn tail.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        stream.seek(offset)
        data = stream.read(most_bytes)
    whole, newline, tail = data.rpartition(b"\n")
    lines = whole.split(b"\n") if newline else []
    events: list[Line] = []
    for index, line in enumerate(lines):
        try:
            event = decode(line)
            # What does not fit its kind is damage like any other: whoever reads it gets no further.
            typed(event)
            events.append(event)
        except ValueError:
            # The last whole line may be half of a page that reached the disk; its writer is gone
            # then.
            if index == len(lines) - 1 and not tail:
                return Chunk(events=events, offset=offset + len(data) - len(line) - 1, tail=line)
            sound = offset + sum(len(line) + 1 for line in lines[:index])
            raise DamagedJournal(
                f"{path}: damaged line at byte {sound}", events=events, offset=sound
            ) from None
    return Chunk(events=events, offset=offset + len(data) - len(tail), tail=tail)


def read_all(path: Path) -> list[Line]:
    """Return every event of a journal, or nothing where there is no such file."""
    try:
        return read_from(path, most_bytes=1 << 30).events
    except FileNotFoundError:
        return []


def read_first(path: Path) -> Line | None:
    """Return a journal's first event; None where it has none that is whole and sound.

    Raises:
        OSError: the file is there and cannot be read.
    """
    try:
        with path.open("rb") as stream:
            line = stream.readline()
    except FileNotFoundError:
        return None
    try:
        return decode(line.removesuffix(b"\n")) if line.endswith(b"\n") else None
    except ValueError:
        return None


class JournalWriter:
    """The one writer of a journal; creating it fails where the file exists.

    Raises:
        FileExistsError: another writer has been here.
    """

    def __init__(self, path: Path) -> None:
        self._handle = open_file(path, os.O_EXCL | os.O_WRONLY | os.O_APPEND)
        self._seq = 0
        parent = os.open(path.parent, os.O_RDONLY)
        os.fsync(parent)
        os.close(parent)

    def write(self, kind: str, *, at: float, **fields: Any) -> None:
        """Append one event; those of DURABLE kinds are on disk when this returns."""
        assert kind in TYPES, kind
        self._seq += 1
        view = memoryview(encode({"seq": self._seq, "at": round(at, 3), "kind": kind, **fields}))
        begin = os.fstat(self._handle).st_size
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except OSError:
            # A disk that filled up in the middle of a line: the end record must not be glued to its
            # torn half.
            os.ftruncate(self._handle, begin)
            raise
        if kind in DURABLE:
            os.fsync(self._handle)

    def close(self) -> None:
        os.fsync(self._handle)
        os.close(self._handle)

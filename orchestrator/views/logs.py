"""Parts of log files: one of gigabytes is never read as a whole."""

from pathlib import Path

from ...jobs.values import Value

# What one look reads.
CHUNK_BYTES = 256_000


class Chunk(Value, frozen=True, kw_only=True):
    """A part of a file."""

    lines: list[str]
    start: int
    """Its first byte."""
    end: int
    """The byte after its last one."""
    size: int
    """Of the whole file."""


def tail(path: Path, limit: int = CHUNK_BYTES) -> list[str]:
    """Return the last lines of a file, whole ones, from its last bytes.

    Raises:
        OSError: it cannot be read.
    """
    return chunk(path, None, limit).lines


def chunk(path: Path, start: int | None, limit: int = CHUNK_BYTES) -> Chunk:
    """Return the lines of a part of a file.

    Args:
        path: of the file.
        start: its first byte; None: the last `limit` bytes.
        limit: the most bytes that are read.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        begin = max(0, size - limit if start is None else min(start, size))
        file.seek(begin)
        data = file.read(limit)
        # What follows a cut begins in the middle of a line, whose rest is not shown.
        cut = start is None and begin > 0
    if cut and (newline := data.find(b"\n")) >= 0:
        begin += newline + 1
        data = data[newline + 1 :]
    end = begin + len(data)
    # A part ends with a whole line where it has one, so that the next begins with one.
    if end < size and (newline := data.rfind(b"\n")) >= 0:
        data = data[: newline + 1]
        end = begin + len(data)
    return Chunk(lines=data.decode(errors="replace").splitlines(), start=begin, end=end, size=size)

"""Print a run's logs, and go on printing while it lives."""

import time
from pathlib import Path

from ...jobs.errors import NothingMatched
from ...jobs.workspace.lineage import read_attempt
from ...jobs.workspace.paths import RunFolder
from . import terminal

POLL_S = 0.5


def print_logs(folder: RunFolder, *, attempt: int | None, rank: int | None, follow: bool) -> None:
    """Print the logs of an attempt (by default the last), each line marked with its rank where
    there are several.

    Raises:
        NothingMatched: there is no log.
    """
    number = attempt or max(folder.attempts(), default=0)
    offsets: dict[Path, int] = {}
    while True:
        ended = read_attempt(folder, number).end is not None
        paths = _paths(folder, number, rank)
        for path in paths:
            _print_from(path, offsets, mark=len({path.name.split(".")[0] for path in paths}) > 1)
        if not follow or ended:
            break
        time.sleep(POLL_S)
    if not offsets and not follow:
        raise NothingMatched(f"no log in {folder.logs(number) if number else folder.path}")


def _paths(folder: RunFolder, number: int, rank: int | None) -> list[Path]:
    name = "*" if rank is None else str(rank)
    order = {".head": 0, ".previous": 1, ".log": 2}
    found = folder.logs(number).glob(f"rank-{name}.log*") if number else []
    return sorted(found, key=lambda path: (path.name.split(".")[0], order.get(path.suffix, 3)))


def _print_from(path: Path, offsets: dict[Path, int], *, mark: bool) -> None:
    try:
        with path.open("rb") as stream:
            stream.seek(offsets.get(path, 0))
            data = stream.read()
    except FileNotFoundError:
        return
    whole = data.rpartition(b"\n")
    text = whole[0] + whole[1] or data
    offsets[path] = offsets.get(path, 0) + len(text)
    prefix = f"{path.name.split('.')[0]}: " if mark else ""
    lines = text.decode(errors="replace").splitlines()
    terminal.write("".join(f"{prefix}{line}\n" for line in lines), end="", flush=True)

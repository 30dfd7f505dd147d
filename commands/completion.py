"""What the shell's completion offers: grids, runs, fields and values that exist.

They are kept in the user's cache, as a shell waits for each answer: to import what reads the ledger
takes longer than a person at the keyboard does not notice. What is kept holds as long as no grid
and no tag has come or gone, which two times of the file system tell.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..db.engine import Connection
    from ..jobs.config.config import Config

# Of more runs none are offered but those that a few typed digits name.
MOST_RUNS = 200
# The ids of so many runs are kept; of more they are looked up.
MOST_KEPT = 20_000
# What was written so short a time before it was read may not have been written to its end.
FRESH_S = 10.0


class Known(NamedTuple):
    """What there is to offer."""

    values: dict[str, list[str]]
    """Field of a condition -> its values."""
    run_ids: list[str] | None
    """None: there are too many to keep."""


def complete_grid(incomplete: str) -> list[str]:
    """Return the built-in grids, and the grid files of this folder or of the one that is named."""
    from ..jobs.grid.catalogue import grid_names

    # Not a glob of what was typed: it may have signs of its own.
    folder, _, begun = incomplete.rpartition("/")
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder or ("/" if incomplete.startswith("/") else ".")))
        before = f"{folder}/" if "/" in incomplete else ""
        files = [before + name for name in _begin_so(names, begun) if name.endswith(".yaml")]
        return [*_begin_so(grid_names(), incomplete), *files]
    return _begin_so(grid_names(), incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Return the runs whose ids begin so."""
    return _offered(lambda known: _runs(known, incomplete))


def complete_runs(incomplete: str) -> list[str]:
    """Return the runs whose ids begin so, and the words and conditions that go on so."""
    return list(dict.fromkeys([*complete_run(incomplete), *complete_selection(incomplete)]))


def complete_selection(incomplete: str) -> list[str]:
    """Return the words and conditions that go on so."""
    return _offered(lambda known: list(_selection(known, incomplete)))


def complete_tag(incomplete: str) -> list[str]:
    """Return the tags that begin so."""
    return _offered(lambda known: _begin_so(known.values["tag"], incomplete))


def _begin_so(words: Iterable[str], begun: str) -> list[str]:
    return [word for word in words if word.startswith(begun)]


def _selection(known: Known, incomplete: str) -> Iterator[str]:
    field, given, before = _condition(incomplete)
    if field:
        *others, begun = given.split(",")
        for value in _values(known, field):
            if value.startswith(begun) and value not in others:
                yield before + ",".join([*others, value])
        return
    words = ["all", *known.values["grid"], *(f"{name}=" for name in known.values)]
    yield from _begin_so(words, incomplete)
    if incomplete:
        yield from _runs(known, incomplete)


def _values(known: Known, field: str) -> list[str]:
    if field not in ("state", "status"):
        return known.values.get(field, [])
    from ..jobs.run.states import RunState

    # They change all the time: those that no run is in now are offered too.
    return sorted(RunState)


def _condition(incomplete: str) -> tuple[str, str, str]:
    """Return a condition's field, its values so far, and what the completion begins with.

    bash takes `=` for a word of its own: of `head=dr` it hands over `head`, `=` and `dr`, and
    replaces the last one. It keeps its words in two variables.
    """
    words = os.environ.get("COMP_WORDS", "").split()
    # A word that is not begun yet is beyond the last one.
    here = int(os.environ.get("COMP_CWORD") or 0)
    field, *rest = words[here - 1 : here + 1] if here < len(words) else [""]
    if rest == ["="]:
        return field.rstrip("!"), "", ""
    if field == "=" and here > 1:
        return words[here - 2].rstrip("!"), incomplete, ""
    field, equals, given = incomplete.partition("=")
    return (field.rstrip("!"), given, field + equals) if equals else ("", "", "")


def _runs(known: Known, begun: str) -> list[str]:
    if known.run_ids is None:
        with _reading() as connection:
            found = _ids(connection, begun, MOST_RUNS)
    else:
        found = _begin_so(known.run_ids, begun)
    return [run_id[: max(8, len(begun))] for run_id in found] if len(found) <= MOST_RUNS else []


def _ids(connection: "Connection", begun: str, most: int) -> list[str]:
    from ..db.selected import run_ids

    return run_ids(connection, begun, most=most + 1)


def _offered(offer: Callable[[Known], list[str]]) -> list[str]:
    """Return what is offered; nothing where there is no ledger that can be read at once."""
    try:
        return offer(_known())
    except Exception:
        # A mistake of any kind must not be printed into the line that is being typed.
        return []


# What is kept -------------------------------------------------------------------------------------


def _known() -> Known:
    """Return what there is to offer: what was kept, or else what the ledger says."""
    from .options import config

    settings = config(None)
    path, stamp = _place(settings), _stamp(settings)
    try:
        kept = json.loads(path.read_bytes())
        if kept["stamp"] == stamp:
            return Known(kept["values"], kept["run_ids"])
    except (OSError, ValueError, KeyError, TypeError):
        # It is computed again.
        pass
    found = _read()
    if time.time() - max(stamp) / 1e9 > FRESH_S:
        with contextlib.suppress(OSError):
            _keep(path, {"stamp": stamp, **found._asdict()})
    return found


def _keep(path: Path, content: dict[str, object]) -> None:
    from ..jobs.atomic_files import make_private_folder, to_json, write_over

    make_private_folder(path.parent)
    write_over(path, to_json(content))


def _place(settings: "Config") -> Path:
    import hashlib

    # Without a home there is no such place, and nothing is kept.
    base = settings.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = hashlib.sha256(str(settings.workspace.root).encode()).hexdigest()[:16]
    return Path(base) / "vtjobs" / "completion" / f"{name}.json"


def _stamp(settings: "Config") -> list[int]:
    """Return when a grid, and when a tag, came or went, in ns since 1970."""
    grids, tags = settings.workspace.grids, settings.workspace.tags
    return [grids.stat().st_mtime_ns, tags.stat().st_mtime_ns if tags.exists() else 0]


def _read() -> Known:
    from ..db.selected import fields, values

    with _reading() as connection:
        # Ids of runs are completed as words, and states are known.
        by_field = {
            field: values(connection, field) if field not in ("run", "state") else []
            for field in fields(connection)
        }
        found = _ids(connection, "", MOST_KEPT)
    return Known(by_field, found if len(found) <= MOST_KEPT else None)


@contextmanager
def _reading() -> Iterator["Connection"]:
    from ..db.engine import check_schema, open_engine, parse_url, reading
    from ..orchestrator.loop.context import ledger_url
    from .options import config

    found = config(None)
    engine = open_engine(parse_url(ledger_url(found, found.workspace.check())))
    check_schema(engine)
    with reading(engine) as connection:
        yield connection

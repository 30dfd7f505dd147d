"""What the shell's completion offers: grids, runs, fields and values that exist."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..db.engine import Connection

# Of more runs none are offered but those that a few typed digits name.
MOST_RUNS = 200


def complete_grid(incomplete: str) -> list[str]:
    """Return the built-in grids and the grid files of this folder."""
    from ..jobs.grid.catalogue import grid_names

    files = [str(path) for path in Path().glob(f"{incomplete}*.yaml")]
    return [name for name in [*grid_names(), *files] if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Return the runs whose ids begin so."""
    return _of_ledger(lambda connection: _runs(connection, incomplete))


def complete_runs(incomplete: str) -> list[str]:
    """Return the runs whose ids begin so, and the words and conditions that go on so."""
    return list(dict.fromkeys([*complete_run(incomplete), *complete_selection(incomplete)]))


def complete_selection(incomplete: str) -> list[str]:
    """Return the words and conditions that go on so."""
    return _of_ledger(lambda connection: list(_selection(connection, incomplete)))


def complete_tag(incomplete: str) -> list[str]:
    """Return the tags that begin so."""
    return _of_ledger(lambda connection: _tags(connection, incomplete))


def _tags(connection: "Connection", incomplete: str) -> list[str]:
    from ..db.selected import values

    return [tag for tag in values(connection, "tag") if tag.startswith(incomplete)]


def _selection(connection: "Connection", incomplete: str) -> Iterator[str]:
    from ..db.selected import fields, values

    field, given, before = _condition(incomplete)
    if field:
        *others, begun = given.split(",")
        for value in values(connection, field):
            if value.startswith(begun) and value not in others:
                yield before + ",".join([*others, value])
        return
    words = ["all", *values(connection, "grid"), *(f"{name}=" for name in fields(connection))]
    yield from (word for word in words if word.startswith(incomplete))
    if incomplete:
        yield from _runs(connection, incomplete)


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


def _runs(connection: "Connection", begun: str) -> list[str]:
    from ..db.selected import run_ids

    found = run_ids(connection, begun, most=MOST_RUNS + 1)
    return [run_id[: max(8, len(begun))] for run_id in found] if len(found) <= MOST_RUNS else []


def _of_ledger(offer: Callable[["Connection"], list[str]]) -> list[str]:
    """Return what is offered; nothing where there is no ledger that can be read at once."""
    try:
        with _reading() as connection:
            return offer(connection)
    except Exception:
        # A mistake of any kind must not be printed into the line that is being typed.
        return []


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

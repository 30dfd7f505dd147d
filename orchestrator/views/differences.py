"""What two runs, two cells or two grids differ in: what `vtjobs diff` shows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...db import queries, selected
from ...db.engine import Connection, reading
from ...db.records import CellRow, RunRow
from ...db.results import TRAINING, values_by_epoch
from ...jobs.atomic_files import read_cache
from ...jobs.documents import Document, in_full
from ...jobs.run.selector import Selection
from ...jobs.run.spec import CellSpec, canonical
from ..loop.context import Context

SCHEMA_VERSION = 1
# What the clock says differs between any two runs.
_TIMES = ("seconds",)
# Of a grid's settings: what names it, and what it says in words of its own.
_NAMES_OF_GRID = ("grid_id", "name", "description", "submitted_at", "submitted_by", "declarations")


class Difference(Document, frozen=True, kw_only=True):
    """One thing in which the two sides differ. A side that has no such thing has null."""

    where: str
    """Dotted name, such as `recipe.lr`."""
    first: Any
    """Its value on the first side; a list where the side has several."""
    second: Any
    """The same of the second side."""


class EpochDifference(Document, frozen=True, kw_only=True):
    """The first epoch at which two runs differ."""

    epoch: int
    """Its number."""
    set: str
    """`training`: the metric is one of training."""
    metric: str
    first: float
    """The first run's value."""
    second: float
    """The second run's value."""


class Shared(Document, frozen=True, kw_only=True):
    """How many runs the two sides have in common."""

    both: int
    """Runs that both sides have."""
    only_first: int
    """Runs that the first side alone has."""
    only_second: int
    """Runs that the second side alone has."""


class Differences(Document, frozen=True, kw_only=True):
    """What two sides differ in."""

    schema_version: int
    first: list[str]
    """The runs of the first side."""
    second: list[str]
    """The runs of the second side."""
    runs: Shared
    """What they have in common."""
    settings: list[Difference]
    """What makes the runs other runs. Where a side has several values, they are a list."""
    grids: list[Difference]
    """What their grids ask for beside that: resources, retries, when to evaluate."""
    environment: list[Difference]
    """Software and hardware of the latest attempts; of two single runs only."""
    results: list[Difference]
    """Scores at the last epoch; of two single runs only."""
    first_epoch: EpochDifference | None
    """Where the values of two single runs part; null: nowhere in the epochs that both have."""
    epochs: int
    """At how many epochs two single runs were compared."""


def differences(context: Context, first: Selection, second: Selection) -> Differences:
    """Compare the runs of two selections.

    Raises:
        NothingMatched: one of them selects nothing.
    """
    with reading(context.ledger.engine) as connection:
        left = queries.list_runs(connection, first)
        right = queries.list_runs(connection, second)
        cells = queries.cell_rows(connection, {row.cell_id for row in right}, second)
        cells |= queries.cell_rows(connection, {row.cell_id for row in left}, first)
        # A run that two grids have counts as the newer one's, whichever was asked for.
        of_left = selected.named_grids(connection, first) or _grids(left)
        of_right = selected.named_grids(connection, second) or _grids(right)
        grids = queries.grid_settings(connection, {*of_left, *of_right})
        single = len(left) == len(right) == 1
        pair = (left[0].run_id, right[0].run_id)
        results = _results(connection, pair) if single else []
        parting, epochs = _parting(connection, pair) if single else (None, 0)
    of_cell = {cell_id: _in_full(cell) for cell_id, cell in cells.items()}
    of_grid = {
        grid_id: {
            name: value for name, value in in_full(found).items() if name not in _NAMES_OF_GRID
        }
        for grid_id, found in grids.items()
    }
    ours, theirs = {row.run_id for row in left}, {row.run_id for row in right}
    return Differences(
        schema_version=SCHEMA_VERSION,
        first=sorted(ours),
        second=sorted(theirs),
        runs=Shared(
            both=len(ours & theirs),
            only_first=len(ours - theirs),
            only_second=len(theirs - ours),
        ),
        settings=_differing(_settings(left, of_cell), _settings(right, of_cell)),
        grids=_differing(
            _values(of_grid[grid_id] for grid_id in of_left),
            _values(of_grid[grid_id] for grid_id in of_right),
        ),
        environment=_environment(context, left[0], right[0]) if single else [],
        results=results,
        first_epoch=parting,
        epochs=epochs,
    )


def _in_full(cell: CellRow) -> dict[str, Any]:
    spec = CellSpec.stored(cell.spec)
    if spec is None:
        # Of imported runs the labels are all that is known.
        names = ("backbone", "dataset", "head", "recipe")
        labels: dict[str, Any] = {name: {"label": getattr(cell, name)} for name in names}
        return labels | cell.axes
    found: dict[str, Any] = in_full(spec.settings)
    return found | {"numerics": spec.numerics}


def _grids(rows: Sequence[RunRow]) -> list[str]:
    return [*dict.fromkeys(row.grid_id for row in rows)]


def _settings(rows: Sequence[RunRow], of_cell: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return dotted name -> its values over the runs, each once."""
    found = _values(of_cell[cell_id] for cell_id in dict.fromkeys(row.cell_id for row in rows))
    seeds = [
        {"seed": row.seed} if row.streams is None else {"seeds": row.streams}
        for row in sorted(rows, key=lambda row: row.seed)
    ]
    return found | _values(seeds) | _values({"init_from": row.parent} for row in rows)


def _values(documents: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        for where, value in flat(document).items():
            found.setdefault(where, {})[canonical(value)] = value
    return {where: list(values.values()) for where, values in found.items()}


def flat(document: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return dotted name -> value."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        where = f"{before}{name}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{where}.")
        else:
            found[where] = value
    return found


def _differing(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> list[Difference]:
    found = []
    for where in dict.fromkeys((*first, *second)):
        # Null and not there mean the same.
        ours, theirs = first.get(where, [None]), second.get(where, [None])
        if {canonical(value) for value in ours} != {canonical(value) for value in theirs}:
            found.append(Difference(where=where, first=_shown(ours), second=_shown(theirs)))
    return found


def _shown(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _environment(context: Context, first: RunRow, second: RunRow) -> list[Difference]:
    sides = []
    for row in (first, second):
        attempt = context.workspace.run(row.run_id).attempt(row.attempt or 0)
        found = flat(read_cache(attempt / "environment.json"))
        # Its length is enough to see that there is one.
        changes = str(found.pop("git.diff", "") or "")
        found["git.uncommitted_lines"] = changes.count("\n")
        sides.append({where: [value] for where, value in found.items()})
    return _differing(*sides)


def _results(connection: Connection, pair: tuple[str, str]) -> list[Difference]:
    sides: list[dict[str, list[Any]]] = [
        {
            f"{row.set_name}.{row.metric}": [row.last]
            for row in queries.results_of(connection, [run_id])
        }
        for run_id in pair
    ]
    return _differing(*sides)


def _parting(connection: Connection, pair: tuple[str, str]) -> tuple[EpochDifference | None, int]:
    """Return the first epoch at which two runs differ, and how many epochs both have."""
    first, second = (values_by_epoch(connection, run_id) for run_id in pair)
    epochs = sorted({epoch for epoch, _, _ in first} & {epoch for epoch, _, _ in second})
    # Of one epoch, training comes before its scores.
    both = sorted(first.keys() & second.keys(), key=lambda one: (one[0], one[1] != TRAINING, one))
    for place in both:
        epoch, set_name, metric = place
        if first[place] != second[place] and not metric.endswith(_TIMES):
            parting = EpochDifference(
                epoch=epoch,
                set=set_name,
                metric=metric,
                first=first[place],
                second=second[place],
            )
            return parting, len(epochs)
    return None, len(epochs)

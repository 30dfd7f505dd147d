"""All that a report's page is made of, as one versioned document."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from ...db import lookups, pace, queries, selected
from ...db.engine import Connection, reading
from ...db.ledger import Ledger
from ...db.records import RunRow
from ...db.results import by_epoch
from ...jobs.documents import Document
from ...jobs.run.comparing import Select
from ...jobs.run.selector import Selection
from ...jobs.workspace.paths import Workspace
from ..stats.over_datasets import Ranking, ranks
from . import epochs
from .cell import Cell
from .cells import described, planned
from .comparisons import Comparisons, compare
from .per_image import CellSplit, variance
from .plan import ComparisonPlan
from .samples import is_watched
from .study import AnyStudy, studies

SCHEMA_VERSION = 1


class GridName(Document, frozen=True, kw_only=True):
    """A grid that runs of a report belong to."""

    grid_id: str
    name: str
    description: str
    """As its file has it."""


class HeadRanking(Ranking, frozen=True, kw_only=True):
    """The ranking of one backbone's heads."""

    backbone: str
    recipe: str


class Report(Document, frozen=True, kw_only=True):
    """All that a report's page is made of: the content of `report.json`."""

    schema_version: int
    vtjobs: str
    """The version that wrote it."""
    grids: list[GridName]
    """The grids that were asked for, else those that the runs belong to."""
    metric: str
    set: str
    select: Select
    cells: list[Cell]
    """One for each combination of settings."""
    states: dict[str, dict[str, str]]
    """Cell -> seed -> state of its run."""
    apart: dict[str, dict[str, str]]
    """The same of the runs of studies, by their place in the design."""
    comparisons: Comparisons
    """Each cell against its baseline."""
    curves: dict[str, dict[int, dict[int, float]]]
    """Cell -> seed -> epoch -> value."""
    interrupted: dict[str, list[int]]
    """Cell -> epochs at which runs of it were resumed."""
    sets: dict[str, dict[str, dict[int, float]]]
    """Further set -> cell -> seed -> value."""
    sizes: dict[str, dict[str, int]]
    """Cell -> set -> its number of images."""
    images: list[CellSplit]
    """How each cell's spread splits."""
    studies: dict[str, list[AnyStudy]]
    """Cell -> its studies of streams of randomness."""
    ranks: list[HeadRanking]
    """Of heads over datasets."""
    hours: dict[str, float]
    """Cell -> hours of a run, mean."""


def gather(
    ledger: Ledger, workspace: Workspace, selection: Selection, plan: ComparisonPlan
) -> Report:
    """Return a report's document.

    Args:
        ledger: where the results are.
        workspace: where the bits of single images and the streams' fingerprints are.
        selection: of runs.
        plan: how cells are compared; its metric and set are those of the report.
    """
    cells = [described(cell) for cell in planned(ledger, selection, plan, with_specs=True)]
    run_ids = {
        run_id: (cell.cell_id, seed)
        for cell in cells
        for seed, run_id in (cell.run_ids or {}).items()
    }
    with reading(ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
        # A run that two grids have counts as the newer one's, whichever was asked for.
        asked = set(selected.named_grids(connection, selection))
        grids = queries.grid_settings(connection, asked or {row.grid_id for row in rows})
        seconds = pace.seconds_per_run(connection)
        scored = by_epoch(connection, run_ids, plan.metric).get(plan.set, {})
        interrupted = lookups.interrupted_epochs(connection, list(run_ids))
        further = _further_sets(connection, run_ids, plan)
        sizes = _sizes(
            connection,
            {cell.cell_id: min((cell.run_ids or {}).values(), default="") for cell in cells},
        )
    states, apart = _states(cells, rows)
    curves: dict[str, dict[int, dict[int, float]]] = {}
    breaks: dict[str, list[int]] = {}
    for run_id, (cell_id, seed) in run_ids.items():
        curves.setdefault(cell_id, {})[seed] = scored.get(run_id, {})
        breaks.setdefault(cell_id, []).extend(interrupted.get(run_id, ()))
    return Report(
        schema_version=SCHEMA_VERSION,
        vtjobs=version("vtjobs"),
        grids=[
            GridName(grid_id=grid_id, name=grid.name, description=grid.description)
            for grid_id, grid in sorted(grids.items())
        ],
        metric=plan.metric,
        set=plan.set,
        select=plan.select,
        cells=cells,
        states=states,
        apart=apart,
        comparisons=compare(cells, plan),
        curves=curves,
        interrupted={cell_id: sorted(found) for cell_id, found in breaks.items()},
        sets=further,
        sizes=sizes,
        images=variance(workspace, cells),
        studies=studies(ledger, workspace, selection, metric=plan.metric, set_name=plan.set),
        ranks=[] if is_watched(cells, plan) else _over_datasets(cells, plan.alpha),
        hours={
            cell.cell_id: seconds[cell.cell_id][0] / 3600
            for cell in cells
            if cell.cell_id in seconds
        },
    )


def _states(
    cells: Sequence[Cell], rows: Sequence[RunRow]
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Return cell -> seed -> state of the replicates, and the same of the runs of studies."""
    states: dict[str, dict[str, str]] = {cell.cell_id: {} for cell in cells}
    apart: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.cell_id in states:
            of = states if row.streams is None else apart
            of.setdefault(row.cell_id, {})[str(row.seed)] = row.state
    return states, apart


def _further_sets(
    connection: Connection, run_ids: Mapping[str, tuple[str, int]], plan: ComparisonPlan
) -> dict[str, dict[str, dict[int, float]]]:
    """Return set -> cell -> seed -> value, for the sets beside the report's own.

    Args:
        connection: to the ledger.
        run_ids: run -> cell, seed.
        plan: with the report's metric and set.
    """
    found: dict[str, dict[str, dict[int, float]]] = {}
    for set_name, own in epochs.scores(
        connection, sorted(run_ids), plan.metric, plan.select
    ).items():
        if set_name != plan.set:
            for run_id, score in own.items():
                cell_id, seed = run_ids[run_id]
                found.setdefault(set_name, {}).setdefault(cell_id, {})[seed] = float(score.value)
    return dict(sorted(found.items()))


def _sizes(connection: Connection, runs: dict[str, str]) -> dict[str, dict[str, int]]:
    """Return cell -> set -> its number of images, as one run of each cell was scored on them."""
    cell_of = {run_id: cell_id for cell_id, run_id in runs.items() if run_id}
    sizes = lookups.images_of(connection, cell_of)
    return {cell_of[run_id]: found for run_id, found in sizes.items()}


def _over_datasets(cells: Sequence[Cell], alpha: float) -> list[HeadRanking]:
    """Rank the heads over datasets, for each backbone and recipe that has them on more than one."""
    groups: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for cell in cells:
        # A mean over the runs that went well is no rank of a method that may diverge.
        if cell.mean is not None and not cell.axes and not cell.states.get("diverged"):
            of = groups.setdefault((cell.backbone, cell.recipe), {})
            of.setdefault(cell.dataset, {})[cell.head] = cell.mean
    found = []
    for (backbone, recipe), means in groups.items():
        if len(means) > 1:
            own = ranks(means, better=cells[0].better, alpha=alpha)
            fields = {name: getattr(own, name) for name in Ranking.__struct_fields__}
            found.append(HeadRanking(backbone=backbone, recipe=recipe, **fields))
    return found

"""What a submission would do, or did: counts, allocations, an estimate of the hours."""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from ...db import lookups, queries, records
from ...db.engine import reading
from ...jobs.documents import Document
from ...jobs.run.spec import CellSpec
from ...jobs.run.states import RunState
from ...jobs.workspace.stored_grid import FrozenGrid
from ..loop.context import Context
from ..loop.plan import spread

if TYPE_CHECKING:
    from .submit import Prepared


class Planned(Document, frozen=True, kw_only=True):
    """The allocations of a submission."""

    backend: str
    count: int
    """Submissions to the scheduler."""
    places: int
    """Jobs, each an element of an array."""
    runs: int
    """Runs in all of them."""
    at_a_time: int
    """Runs that share a job."""
    nodes: int
    """Of one run."""
    ranks: int
    """Of one run on one node."""
    gpus: int
    """Of one run on one node."""


class Estimate(Document, frozen=True, kw_only=True):
    """What the runs will take, by the ledger's history."""

    run_hours: float | None
    """Of the runs with history; null if no run has any."""
    gpu_hours: float | None
    """Of the runs with history; null if no run has any."""
    runs_without_history: int
    """Runs that nothing is known of; the hours do not include them."""


class Leftover(Document, frozen=True, kw_only=True):
    """Runs of the submission before, of the same name, that this one no longer has."""

    grid_id: str
    """The submission before."""
    runs: int
    """Those that still wait or run, and that no grid of another name has."""
    cancel: str
    """The command that cancels them, once this grid is submitted."""


class Summary(Document, frozen=True, kw_only=True):
    """What `vtjobs plan` shows and `vtjobs submit` did."""

    schema_version: int
    grid_id: str
    name: str
    cells: int
    """Combinations of settings."""
    runs: int
    """Runs of the grid."""
    new: int
    """Runs that the ledger does not have yet."""
    pending: int
    """Runs that the ledger has already, and that are pending."""
    blocked: int
    """Runs that the ledger has already, and that are blocked."""
    queued: int
    """Runs that the ledger has already, and that are queued."""
    running: int
    """Runs that the ledger has already, and that are running."""
    completed: int
    """Runs that the ledger has already, and that are completed."""
    diverged: int
    """Runs that the ledger has already, and that are diverged."""
    failed: int
    """Runs that the ledger has already, and that are failed."""
    cancelled: int
    """Runs that the ledger has already, and that are cancelled."""
    excluded: dict[str, int]
    """Rule of the grid -> runs that it leaves out."""
    allocations: list[Planned]
    """Where the runs go."""
    estimate: Estimate
    """What they will take."""
    warnings: list[str]
    """What may not be as it was meant."""
    leftover: Leftover | None
    """What is left of the submission before; null where nothing is."""


def summary(context: Context | None, prepared: "Prepared") -> Summary:
    """Return what a submission would do: counts, rules, allocations, an estimate of the hours."""
    frozen = prepared.frozen
    run_ids = [run[0] for run in frozen.runs]
    states: dict[str, RunState] = {}
    if context is not None:
        with reading(context.ledger.engine) as connection:
            states = lookups.states_of(connection, run_ids)
    counts = Counter(states.values())
    new = [run for run in frozen.runs if run[0] not in states]
    to_do = [run for run in frozen.runs if states.get(run[0], RunState.PENDING) == RunState.PENDING]
    return Summary(
        schema_version=1,
        grid_id=frozen.grid_id,
        name=frozen.settings.name,
        cells=len(frozen.cells),
        runs=len(run_ids),
        new=len(new),
        **{str(state): counts.get(state, 0) for state in RunState},
        excluded=frozen.settings.excluded,
        allocations=_allocations(prepared, len(to_do)),
        estimate=_estimate(context, frozen, to_do),
        warnings=prepared.warnings,
        leftover=_leftover(context, frozen),
    )


def _leftover(context: Context | None, frozen: FrozenGrid) -> Leftover | None:
    """Return which runs of the newest other submission of this name are no longer wanted."""
    if context is None:
        return None
    with reading(context.ledger.engine) as connection:
        before = lookups.submission_before(connection, frozen.settings.name, frozen.grid_id)
        if before is None:
            return None
        waiting = lookups.unsettled_runs(connection, before) - {run[0] for run in frozen.runs}
        others = lookups.grids_of_other_names(connection, waiting, frozen.settings.name)
    wanted = set[str]().union(*others.values())
    if not waiting - wanted:
        return None
    spared = ",".join([frozen.grid_id, *sorted(others)])
    states = ",".join(state for state in RunState if not state.is_terminal)
    return Leftover(
        grid_id=before,
        runs=len(waiting - wanted),
        cancel=f"vtjobs cancel grid={before} 'grid!={spared}' state={states}",
    )


def _allocations(prepared: "Prepared", runs: int) -> list[Planned]:
    if not runs:
        return []
    shape, (_, room) = prepared.shape, spread(list(range(runs)), prepared.room)
    places = math.ceil(runs / room.tasks)
    return [
        Planned(
            backend=shape.backend,
            count=math.ceil(places / room.places),
            places=places,
            runs=runs,
            at_a_time=min(room.lanes, runs),
            nodes=shape.nodes,
            ranks=shape.ranks,
            gpus=shape.gpus,
        )
    ]


def _estimate(context: Context | None, frozen: FrozenGrid, to_do: list[Any]) -> Estimate:
    """Estimate from the ledger's own history; see `_seconds`."""
    known = [] if context is None else _seconds(context, frozen, to_do)
    total = sum(known)
    is_known = bool(known) or not to_do
    gpu_hours = round(total * frozen.settings.resources.gpus / 3600, 4)
    return Estimate(
        run_hours=round(total / 3600, 4) if is_known else None,
        gpu_hours=gpu_hours if is_known else None,
        runs_without_history=len(to_do) - len(known),
    )


def _seconds(context: Context, frozen: FrozenGrid, to_do: list[Any]) -> list[float]:
    """Return the seconds of each run of which something is known.

    The mean of its cell, else the mean per epoch of the cells with its backbone and dataset.
    """
    with reading(context.ledger.engine) as connection:
        history = queries.seconds_per_run(connection)
        rows = queries.cell_rows(connection, set(history))
    per_epoch = _seconds_per_epoch(history, rows)
    found: dict[int, float] = {}
    for index in {run[1] for run in to_do}:
        cell = frozen.cells[index]
        alike = per_epoch.get((cell.labels["backbone"], cell.labels["dataset"]))
        if cell.cell_id in history:
            found[index] = history[cell.cell_id][0]
        elif alike is not None:
            found[index] = alike * cell.spec.settings.recipe.epochs
    return [seconds for run in to_do if (seconds := found.get(run[1])) is not None]


def _seconds_per_epoch(
    history: dict[str, tuple[float, int]], rows: dict[str, records.CellRow]
) -> dict[tuple[str, str], float]:
    """Return (backbone, dataset) -> mean seconds of an epoch of the runs that completed."""
    sums: dict[tuple[str, str], list[float]] = {}
    for cell_id, (seconds, runs) in history.items():
        row = rows[cell_id]
        epochs = CellSpec.stored(row.spec).settings.recipe.epochs
        both = sums.setdefault((row.backbone, row.dataset), [0.0, 0.0])
        both[0] += seconds * runs
        both[1] += epochs * runs
    return {key: seconds / epochs for key, (seconds, epochs) in sums.items() if epochs}

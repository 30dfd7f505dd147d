"""What a submission would do, or did: counts, allocations, an estimate of the hours."""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from ...db import lookups, memory, pace
from ...db.engine import reading
from ...jobs.documents import Document
from ...jobs.grid.expansion import Expansion
from ...jobs.run.eta import Eta, Left, Waiting, estimate, together
from ...jobs.run.pace import CellFacts, History, Kind
from ...jobs.run.selector import Selection
from ...jobs.run.states import RunState
from ...jobs.workspace.stored_grid import FrozenGrid
from ..loop.context import Context
from ..loop.plan import spread
from .imported_check import require_no_imported_seeds
from .metric_check import require_same_metrics

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
    per_gpu: int
    """Runs that share each of them."""
    asks: list[str]
    """What one job asks for, as options of the scheduler; empty where it has none."""
    starts_at: float | None
    """When the scheduler expects the first job to start; null where it does not say."""


class Estimate(Document, frozen=True, kw_only=True):
    """What the runs will take, by the ledger's history."""

    run_hours: float | None
    """Of the runs with history; null if no run has any."""
    gpu_hours: float | None
    """Of the runs with history; null if no run has any."""
    runs_without_history: int
    """Runs that nothing is known of; the hours do not include them."""
    eta: Eta | None
    """When the last has ended, had the grid its machines to itself; null: nothing is to be done."""


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
    """Return what a submission would do: counts, rules, allocations, an estimate of the hours.

    Raises:
        BadInput: a metric's name stands for another function in this workspace, or a run is of a
            seed that was imported into its cell.
    """
    if context is not None:
        require_same_metrics(context, prepared)
        require_no_imported_seeds(context, prepared)
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
        estimate=_estimate(context, prepared, to_do),
        warnings=[*prepared.warnings, *_host_memory(context, prepared)],
        leftover=_leftover(context, frozen),
    )


def _host_memory(context: Context | None, prepared: "Prepared") -> list[str]:
    """Tell where runs that train side by side would need more memory of their host than there is,
    by what such runs had before.
    """
    room = prepared.room
    if context is None or room.memory is None:
        return []
    labels = [cell.labels for cell in prepared.expansion.cells]
    backbones, datasets = ({one[axis] for one in labels} for axis in ("backbone", "dataset"))
    with reading(context.ledger.engine) as connection:
        most = memory.most_host_memory(connection, backbones, datasets)
    present, lanes = room.memory.bytes, min(room.lanes, len(prepared.frozen.runs))
    if most is None or lanes * most <= present:
        return []
    fix = room.memory.fix.format(runs=max(1, present // most))
    return [
        "earlier runs of these backbones on these datasets took up to"
        f" {_gib(most)} of host memory each, and {lanes} at a time share {_gib(present)}. {fix}"
    ]


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


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
        cancel=f"vtjobs cancel grid={before} 'grid!={spared}' state={states}{context.where}",
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
            per_gpu=shape.per_gpu,
            asks=list(prepared.rehearsal.asks),
            starts_at=prepared.rehearsal.starts_at,
        )
    ]


def _estimate(context: Context | None, prepared: "Prepared", to_do: list[Any]) -> Estimate:
    """Estimate from the ledger's own history: hours of all, and the time until the last has ended
    where nothing else is at work.
    """
    frozen, found = prepared.frozen, _to_do(prepared.frozen, to_do)
    known = History() if context is None else _history(context, prepared.expansion, found)
    paces = known.paces(one.cell_id for one in found)
    seconds = [paces[one.cell_id].seconds * one.runs for one in found if one.cell_id in paces]
    runs = sum(one.runs for one in found if one.cell_id in paces)
    is_known = bool(seconds) or not to_do
    hours = round(sum(seconds) / 3600, 4)
    slots = _slots(prepared, len(to_do))
    left = Left(underway=[], waiting=found, openings={"": [0.0] * slots})
    return Estimate(
        run_hours=hours if is_known else None,
        gpu_hours=round(hours * frozen.settings.resources.gpus, 4) if is_known else None,
        runs_without_history=len(to_do) - runs,
        eta=together(list(estimate(left, known, 0.0).values())),
    )


def _to_do(frozen: FrozenGrid, runs: list[Any]) -> list[Waiting]:
    """Return what would be started, the runs of a cell together."""
    counts = Counter(run[1] for run in runs)
    found = []
    for index, count in counts.items():
        cell = frozen.cells[index]
        # A parent that has completed holds nobody up.
        parent = cell.parent if cell.parent in counts else None
        found.append(
            Waiting(
                grid_id=frozen.grid_id,
                cell_id=cell.cell_id,
                runs=count,
                parent_cell=None if parent is None else frozen.cells[parent].cell_id,
            )
        )
    return found


def _history(context: Context, expansion: Expansion, to_do: list[Waiting]) -> History:
    """Return what the ledger has seen of the grid's cells, or of cells alike."""
    wanted = {one.cell_id for one in to_do}
    facts = {
        cell.cell_id: CellFacts(
            kind=Kind(cell.labels["backbone"], cell.labels["dataset"]),
            epochs=pace.epochs_of(cell.spec.recipe),
        )
        for cell in expansion.cells
        if cell.cell_id in wanted
    }
    with reading(context.ledger.engine) as connection:
        running = pace.underway(connection, Selection(), {})
        return pace.history(connection, wanted, running, facts)


def _slots(prepared: "Prepared", runs: int) -> int:
    """Return how many runs will train at a time, if the machines are free."""
    room = prepared.room
    limits = [runs, prepared.frozen.settings.max_running]
    limits += [room.tasks * places for places in room.free.values()]
    limits += [room.lanes * room.at_once] if room.at_once is not None else []
    return min(limit for limit in limits if limit is not None)

"""What the reading commands show, as documents.

The terminal and `--json` are two prints of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...db import lookups, queries, records, scheduler_notes, selected
from ...db.engine import Connection, reading
from ...db.gpu_hours import GpuHours, added, gpu_hours
from ...jobs.atomic_files import read_json
from ...jobs.documents import Document, field, to_plain
from ...jobs.errors import NothingMatched
from ...jobs.grid import fidelity
from ...jobs.run.design import seed_text
from ...jobs.run.eta import Eta
from ...jobs.run.selector import Selection
from ...jobs.run.spec import Axes, CellSpec, RunSpec
from ...jobs.run.states import FailureClass, RunState
from ...jobs.units import iso
from ...jobs.workspace.grid_settings import GridSettings
from ...jobs.workspace.markers import held_runs
from ..loop.context import Context
from .attempts import AttemptView, CheckpointView, attempt_views
from .causes import Cause, cause_of
from .eta import etas, etas_of_runs
from .remedies import remedy
from .shown import HELD, shown_state

SCHEMA_VERSION = 1


class Unreachable(Document, frozen=True, kw_only=True):
    """A scheduler that could not be asked."""

    backend: str
    since: str | None
    """ISO 8601, UTC."""
    reason: str
    """Why."""


class GridCounts(Document, frozen=True, kw_only=True):
    """The runs of one grid."""

    grid_id: str
    name: str
    runs: dict[str, int]
    """State -> runs in it, every state."""
    held: int
    """Those of the pending runs that are on hold."""
    submitted_by: str
    """user@host of its latest submission; empty: it was not recorded."""
    eta: Eta | None
    """When its runs will have ended, those on hold and those of a newer grid left out; null: none
    is left.
    """

    @property
    def shown(self) -> dict[str, int]:
        """The word that a run is shown by -> runs; every run is counted once."""
        return _shown_counts(self.runs, self.held)


class Status(Document, frozen=True, kw_only=True):
    """What `vtjobs status` shows."""

    schema_version: int
    as_of: str | None
    """When it was looked; ISO 8601, UTC."""
    workspace: str
    """Its folder."""
    runs: dict[str, int]
    """State -> runs in it, every state."""
    grids: list[GridCounts]
    """The grids, each with its runs."""
    held: int
    """Those of the pending runs that are on hold."""
    unreachable: list[Unreachable]
    """Schedulers that could not be asked."""
    damaged_journals: list[str]
    """`run/attempt: why` of journals that were set aside."""
    eta: Eta | None
    """When the runs will have ended, those on hold left out; null: none is left."""
    gpu_hours: GpuHours | None = None
    """Of the selected runs' attempts, where the selection names grids."""

    @property
    def shown(self) -> dict[str, int]:
        """The word that a run is shown by -> runs; every run is counted once."""
        return _shown_counts(self.runs, self.held)


def _shown_counts(states: dict[str, int], held: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for state, count in states.items():
        if state == RunState.PENDING:
            found |= {state: count - held, HELD: held}
        else:
            found[state] = count
    return found


class RunView(Document, frozen=True, kw_only=True):
    """One run, as `vtjobs runs` lists it."""

    run_id: str
    grid_id: str
    """Whose settings hold: the newest submission."""
    cell_id: str
    """Shared with the runs that differ in the seed alone."""
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    """Further settings by which cells of the grid differ."""
    seed: int
    """Or the place in the design, where streams of randomness vary apart."""
    streams: dict[str, int] | None
    """Stream -> value, in a variance study."""
    state: str
    """pending, blocked, queued, running, completed, diverged, failed or cancelled."""
    shown_state: str
    """The same, or what is never stored: cancelling, held, or unknown (no heartbeat for ten
    minutes).
    """
    reason: str
    """Why it is in this state, if it is not obvious."""
    scheduler: str | None
    """What the scheduler last said of the latest attempt, such as `PENDING Priority`."""
    attempts: int
    """How many there were."""
    epoch: int | None
    step: int | None
    steps: int | None
    """Of the whole run."""
    host: str | None
    started_at: str | None
    ended_at: str | None
    seconds: float | None
    """Of the latest attempt."""
    top1: float | None
    """On the test set, at the last epoch."""
    eta: Eta | None
    """When it will have ended; null: it does not run."""


class Settings(Document, frozen=True, kw_only=True):
    """What is set for head and recipe, and who says so."""

    head: list[fidelity.Setting]
    """Of a published head."""
    recipe: list[fidelity.Setting]
    """Of the recipe."""


class ResultView(Document, frozen=True, kw_only=True):
    """One metric of a run on one set."""

    set_name: str
    metric: str
    cell_id: str
    last: float
    """At the last epoch."""
    last_epoch: int
    best: float
    """At the best epoch on this very set."""
    best_epoch: int


class Change(Document, frozen=True, kw_only=True):
    """One change of an attempt's state."""

    at: str | None
    attempt: int
    source: str
    """Who said so: journal, local, squeue, sacct, ray, user or vtjobs."""
    before: str | None
    """The state that it left; null at the beginning."""
    after: str
    """The state that it came to."""
    raw: str
    """The scheduler's own word."""


class RunDetails(RunView, frozen=True, kw_only=True):
    """All that is known of one run: what `vtjobs show` shows."""

    schema_version: int
    settings: Settings
    """What is set for head and recipe, and who says so."""
    parent: str | None
    """The run of the stage before."""
    folder: str
    """Where its files are."""
    spec: dict[str, Any]
    """Its description."""
    environment: dict[str, Any] | None
    """Software and hardware of the latest attempt."""
    results: list[ResultView]
    """Its scores."""
    attempts: list[AttemptView]  # type: ignore[assignment]
    """Instead of their number."""
    checkpoints: list[CheckpointView]
    """Those that were announced."""
    history: list[Change]
    """Every change of state."""
    grids: list[str]
    """Every grid that has the run, the newest first."""


class FailureGroup(Document, frozen=True, kw_only=True):
    """Failed runs with one cause."""

    failure: str = field(name="class")
    """The class of the failure."""
    signature: str
    """The error, without numbers."""
    message: str
    """The own line of the sample's error, in full and with its numbers."""
    place: str
    """File and line of your code where it was raised, such as `head.py:11`; or nothing."""
    runs: int
    """How many."""
    states: dict[str, int]
    hosts: list[str]
    """The nodes that they failed on."""
    common: dict[str, Any]
    """What all of the runs have in common of backbone, dataset, head and seed."""
    sample: str
    """One of the runs."""
    log: str | None
    """Its log."""
    run_ids: list[str]
    """All of them."""
    next: str
    """A command that shows more."""
    remedy: str
    """What to do about the runs that have ended, or nothing."""


def status(context: Context, selection: Selection) -> Status:
    """Return how many runs are in each state, over all and per grid.

    Raises:
        NothingMatched: a condition has a value that no run has.
    """
    with reading(context.ledger.engine) as connection:
        counts = queries.status_counts(connection, selection)
        if not counts and (unknown := selected.absent(connection, selection)):
            raise NothingMatched("\n".join(unknown))
        settings = queries.grid_settings(connection)
        listed = [
            grid_id
            for grid_id, facts in settings.items()
            if {grid_id, facts.name} & set(selection.names)
        ]
        # The row of a grid that is named has all of its runs: a name alone means the newest grid.
        of_rows = replace(selection, names=()) if listed else selection
        by_grid = queries.counts_by_grid(connection, of_rows)
        held = held_runs(context.workspace, settings)
        waiting = queries.pending_by_grid(connection, of_rows) if held else {}
        waiting_here = queries.pending_by_grid(connection, selection) if held else {}
        held_here = held & set[str]().union(*waiting_here.values())
        damaged = queries.damaged_journals(connection)
        spent = _spent(connection, selection) if counts else None
    left = etas(context, selection)
    grids = [
        GridCounts(
            grid_id=grid_id,
            name=settings[grid_id].name,
            runs=_all_states(by_grid[grid_id]),
            held=len(held & waiting.get(grid_id, set())),
            submitted_by=settings[grid_id].submitted_by,
            eta=left.grids.get(grid_id),
        )
        for grid_id in listed or settings
        if grid_id in by_grid
    ]
    return Status(
        schema_version=SCHEMA_VERSION,
        as_of=iso(context.clock()),
        workspace=str(context.workspace.root),
        runs=_all_states(counts),
        grids=grids,
        held=len(held_here),
        unreachable=[
            Unreachable(backend=name, since=iso(fact.since), reason=fact.reason)
            for name, fact in scheduler_notes.away(context.ledger).items()
        ],
        damaged_journals=[
            f"{row['run_id']}/{row['attempt']:04d}: {row['note']}" for row in damaged
        ],
        gpu_hours=spent,
        eta=left.all,
    )


def _spent(connection: Connection, selection: Selection) -> GpuHours | None:
    # It takes a look at every attempt, which is too much for a whole workspace.
    if not selected.named_grids(connection, selection):
        return None
    chosen = selected.select_ids(connection, selection)
    by_run = gpu_hours(connection, chosen)
    return added(hours for of_run in by_run.values() for hours in of_run.values())


def _all_states(counts: dict[str, int]) -> dict[str, int]:
    return {str(state): counts.get(state, 0) for state in RunState}


def runs(context: Context, selection: Selection, *, limit: int | None = None) -> list[RunView]:
    """Return the selected runs, one document each."""
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection, limit=limit)
        scores = {
            row.run_id: row.last
            for row in queries.results_of(connection, [row.run_id for row in rows])
            if row.metric == "top1" and row.set_name == "test"
        }
    held = held_runs(context.workspace, {row.grid_id for row in rows})
    left = _etas_of(context, rows)
    return [
        RunView(
            **_facts(context, row, scores.get(row.run_id), row.run_id in held),
            eta=left.get(row.run_id),
        )
        for row in rows
    ]


def _etas_of(context: Context, rows: Sequence[records.RunRow]) -> dict[str, Eta]:
    """Return run -> when it will have ended, of those that run."""
    running = {row.run_id for row in rows if row.state == RunState.RUNNING}
    return etas_of_runs(context, running) if running else {}


def _facts(
    context: Context, row: records.RunRow, score: float | None, is_held: bool
) -> dict[str, Any]:
    return {
        "run_id": row.run_id,
        "grid_id": row.grid_id,
        "cell_id": row.cell_id,
        "backbone": row.backbone,
        "dataset": row.dataset,
        "head": row.head,
        "recipe": row.recipe,
        "stage": row.stage,
        "axes": row.axes,
        "seed": row.seed,
        "streams": row.streams,
        "state": row.state,
        "shown_state": shown_state(context, row, is_held),
        "reason": row.reason,
        "scheduler": row.word,
        "attempts": row.attempts,
        "epoch": row.epoch,
        "step": row.step,
        "steps": row.steps,
        "host": row.host,
        "started_at": iso(row.started_at),
        "ended_at": iso(row.ended_at),
        "seconds": _seconds(context, row),
        "top1": score,
    }


def _seconds(context: Context, row: records.RunRow) -> float | None:
    if row.started_at is None:
        return None
    return round((row.ended_at or context.clock()) - row.started_at, 1)


def show(context: Context, run_id: str) -> RunDetails:
    """Return everything that is known of one run."""
    folder = context.workspace.run(run_id)
    with reading(context.ledger.engine) as connection:
        row = queries.list_runs(connection, Selection(names=(run_id,)))[0]
        attempts = queries.attempts_of(connection, run_id)
        events = queries.events_of(connection, run_id)
        checkpoints = queries.checkpoints_of(connection, run_id)
        results = queries.results_of(connection, [run_id])
        grids = lookups.grids_of(connection, run_id)
        hours = gpu_hours(connection, [run_id]).get(run_id, {})
        cell = queries.cell_rows(connection, {row.cell_id})[row.cell_id]
    held = run_id in held_runs(context.workspace, {row.grid_id})
    # A run's own description is written when it starts; until then its cell has most of it.
    spec = RunSpec.parse(folder.spec.read_text()) if folder.spec.exists() else None
    cell_spec = CellSpec.stored(cell.spec)
    settings = spec or cell_spec.settings
    last = attempts[-1].number if attempts else 0
    facts = _facts(context, row, None, held)
    return RunDetails(
        **(facts | {"attempts": attempt_views(context.workspace, row.grid_id, attempts, hours)}),
        eta=_etas_of(context, [row]).get(run_id),
        schema_version=SCHEMA_VERSION,
        settings=Settings(
            head=fidelity.of_head(settings.head, row.backbone, row.recipe),
            recipe=fidelity.of_recipe(settings.recipe, row.recipe),
        ),
        parent=row.parent,
        folder=str(folder.path),
        spec=to_plain(spec) | {"recipe": spec.recipe.in_full()}
        if spec
        else to_plain(settings) | {"numerics": cell_spec.numerics},
        environment=read_json(folder.attempt(last) / "environment.json") if last else None,
        results=[_result(result) for result in results],
        checkpoints=[
            CheckpointView(
                attempt=point.attempt,
                epoch=point.epoch,
                step=point.step,
                bytes=point.bytes,
                at=iso(point.at),
                on_disk=folder.checkpoint(point.attempt, point.step).exists(),
            )
            for point in checkpoints
        ],
        history=[Change(**(asdict(event) | {"at": iso(event.at)})) for event in events],
        grids=grids,
    )


def _result(row: records.ResultRow) -> ResultView:
    facts = asdict(row)
    return ResultView(**{name: facts[name] for name in ResultView.__struct_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """What else is known of runs that failed."""

    errors: dict[str, str]
    """Run -> what its newest attempt stored of its error."""
    settings: dict[str, GridSettings]


def failures(context: Context, selection: Selection) -> list[FailureGroup]:
    """Return the failed runs grouped by cause, the most frequent first."""
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
    failed = [
        row
        for row in rows
        if row.state in (RunState.FAILED, RunState.DIVERGED, RunState.BLOCKED) or row.failure
    ]
    groups: dict[tuple[str, str], list[records.RunRow]] = defaultdict(list)
    for row in failed:
        if row.state not in (RunState.COMPLETED, RunState.CANCELLED):
            groups[row.failure or row.state, row.signature or row.reason].append(row)
    with reading(context.ledger.engine) as connection:
        errors = lookups.newest_errors(connection, [found[0].run_id for found in groups.values()])
        settings = queries.grid_settings(
            connection, {found[0].grid_id for found in groups.values()}
        )
    return [
        _group(context, failure, signature, members, _Ends(errors=errors, settings=settings))
        for (failure, signature), members in sorted(
            groups.items(), key=lambda item: (-len(item[1]), item[0])
        )
    ]


def _group(
    context: Context, failure: str, signature: str, members: list[records.RunRow], ends: _Ends
) -> FailureGroup:
    sample = members[0]
    error = ends.errors.get(sample.run_id, "")
    cause = cause_of(context.workspace, sample.grid_id, signature=signature, error=error)
    return FailureGroup(
        failure=failure,
        signature=signature,
        message=cause.message,
        place=cause.where,
        runs=len(members),
        states=dict(Counter(member.state for member in members)),
        hosts=sorted({member.host for member in members if member.host}),
        common=_common(members),
        sample=sample.run_id,
        log=next(iter(map(str, logs_of(context, sample.run_id))), None),
        run_ids=[member.run_id for member in members],
        next=f"vtjobs logs {sample.run_id[:8]}",
        remedy=_remedy(members, cause, ends.settings[sample.grid_id]),
    )


def _remedy(members: list[records.RunRow], cause: Cause, settings: GridSettings) -> str:
    """Return what to do about those of a group that have ended; the others go on by themselves."""
    sample = members[0]
    over = [row.run_id for row in members if row.state in (RunState.FAILED, RunState.DIVERGED)]
    if not over:
        return f"vtjobs why {sample.run_id[:8]}" if sample.state == RunState.BLOCKED else ""
    failure = FailureClass(sample.failure) if sample.failure else None
    return remedy(failure, cause, run_ids=over, settings=settings)


def _common(members: Iterable[records.RunRow]) -> dict[str, Any]:
    """Return the coordinates that all members share."""
    found: dict[str, set[Any]] = defaultdict(set)
    for member in members:
        for name in ("backbone", "dataset", "head"):
            found[name].add(getattr(member, name))
        found["seed"].add(seed_text(member.seed, member.streams) if member.streams else member.seed)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def logs_of(context: Context, run_id: str, attempt: int | None = None) -> list[Path]:
    """Return the log files of an attempt, by default the last one that left any."""
    folder = context.workspace.run(run_id)
    numbers = [attempt] if attempt else list(reversed(folder.attempts()))
    for number in numbers:
        found = sorted(folder.logs(number).glob("*.log*"))
        if found:
            return found
    return []

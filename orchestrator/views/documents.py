"""What the reading commands show, as documents.

The terminal and `--json` are two prints of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...db import lookups, queries, records
from ...db.engine import reading
from ...db.gpu_hours import gpu_hours
from ...jobs.atomic_files import read_cache
from ...jobs.documents import Document, field, to_plain
from ...jobs.errors import DamagedFile
from ...jobs.grid import fidelity
from ...jobs.run.design import seed_text
from ...jobs.run.eta import Eta
from ...jobs.run.selector import Selection
from ...jobs.run.spec import Axes, CellSpec, RunSpec
from ...jobs.run.states import FailureClass, RunState
from ...jobs.units import iso
from ...jobs.workspace.grid_settings import GridSettings
from ...jobs.workspace.paths import RunFolder
from ...jobs.workspace.stored_grid import read_spec
from ..loop.context import Context
from .attempts import AttemptView, CheckpointView, attempt_views
from .causes import Cause, cause_of
from .eta import etas_of_runs
from .remedies import remedy
from .shown import Words

SCHEMA_VERSION = 1


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
    """The same, or what is never stored: cancelling, held, suspended or requeued (by somebody in
    the scheduler), or unknown (no heartbeat for ten minutes).
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


def runs(context: Context, selection: Selection, *, limit: int | None = None) -> list[RunView]:
    """Return the selected runs, one document each."""
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection, limit=limit)
        scores = {
            row.run_id: row.last
            for row in queries.results_of(connection, [row.run_id for row in rows])
            if row.metric == "top1" and row.set_name == "test"
        }
    words, left = Words(context), _etas_of(context, rows)
    return [
        RunView(**_facts(words, row, scores.get(row.run_id)), eta=left.get(row.run_id))
        for row in rows
    ]


def _etas_of(context: Context, rows: Sequence[records.RunRow]) -> dict[str, Eta]:
    """Return run -> when it will have ended, of those that run."""
    running = {row.run_id for row in rows if row.state == RunState.RUNNING}
    return etas_of_runs(context, running) if running else {}


def _facts(words: Words, row: records.RunRow, score: float | None) -> dict[str, Any]:
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
        "shown_state": words.of(row),
        "reason": row.reason,
        "scheduler": row.word,
        "attempts": row.attempts,
        "epoch": row.epoch,
        "step": row.step,
        "steps": row.steps,
        "host": row.host,
        "started_at": iso(row.started_at),
        "ended_at": iso(row.ended_at),
        "seconds": _seconds(words.context, row),
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
    spec = _spec(folder)
    cell_spec = CellSpec.stored(cell.spec)
    settings = spec or cell_spec.settings
    last = attempts[-1].number if attempts else 0
    facts = _facts(Words(context), row, None)
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
        environment=read_cache(folder.attempt(last) / "environment.json") or None,
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


def _spec(folder: RunFolder) -> RunSpec | None:
    """Return a run's own description; None: its cell has most of it.

    It is written when the run starts, and again at its next start where it is damaged.
    """
    try:
        return read_spec(folder)
    except (FileNotFoundError, DamagedFile):
        return None


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
        next=f"vtjobs logs {sample.run_id[:8]}{context.where}",
        remedy=_remedy(members, cause, ends.settings[sample.grid_id], context.where),
    )


def _remedy(members: list[records.RunRow], cause: Cause, settings: GridSettings, where: str) -> str:
    """Return what to do about those of a group that have ended; the others go on by themselves."""
    sample = members[0]
    over = [row.run_id for row in members if row.state in (RunState.FAILED, RunState.DIVERGED)]
    if not over:
        return f"vtjobs why {sample.run_id[:8]}{where}" if sample.state == RunState.BLOCKED else ""
    failure = FailureClass(sample.failure) if sample.failure else None
    return remedy(failure, cause, run_ids=over, settings=settings, where=where)


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

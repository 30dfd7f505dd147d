"""All that is known of one run: what `vtjobs show` shows."""

from collections.abc import Sequence
from typing import Any

from ...db import lookups, queries, records, tags
from ...db.engine import reading
from ...db.gpu_hours import gpu_hours
from ...jobs.atomic_files import read_cache
from ...jobs.documents import Document, to_plain
from ...jobs.errors import DamagedFile
from ...jobs.grid import fidelity
from ...jobs.run.selector import Selection
from ...jobs.run.settings import CellSettings
from ...jobs.run.spec import CellSpec, RunSpec
from ...jobs.units import iso
from ...jobs.values import asdict
from ...jobs.workspace.events import LoadedWeights
from ...jobs.workspace.lineage import origin_of
from ...jobs.workspace.notes import Note, notes_of
from ...jobs.workspace.paths import RunFolder
from ...jobs.workspace.stored_grid import read_spec
from ..loop.context import Context
from .attempts import AttemptView, CheckpointView, attempt_views
from .runs import SCHEMA_VERSION, RunView, etas_of_running, facts_of
from .shown import Words


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
    """Its description; empty of an imported run whose settings nobody knows."""
    imported: str | None = None
    """Where its scores were imported from; None: vtjobs trains it."""
    environment: dict[str, Any] | None
    """Software and hardware of the latest attempt."""
    weights: LoadedWeights | None = None
    """What it took of the weights that it starts from; None where all are drawn."""
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
    notes: tuple[Note, ...] = ()
    """What people wrote about it, the oldest first."""
    tags: tuple[str, ...] = ()
    """What people put on it or on a grid that it is in, to select by."""


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
        tagged = tags.of_targets(connection, [run_id, *grids])
        hours = gpu_hours(connection, [run_id]).get(run_id, {})
        cell = queries.cell_rows(connection, {row.cell_id}, Selection())[row.cell_id]
    spec = _spec(folder)
    settings = spec or cell.settings
    last = attempts[-1].number if attempts else 0
    # Only of these does a journal say more than the settings.
    is_loaded = settings is not None and (
        settings.backbone.weights is not None or row.parent is not None
    )
    origin = origin_of(folder) if is_loaded else None
    facts = facts_of(Words(context), row, {})
    return RunDetails(
        **(facts | {"attempts": attempt_views(context.workspace, row.grid_id, attempts, hours)}),
        eta=etas_of_running(context, [row]).get(run_id),
        schema_version=SCHEMA_VERSION,
        settings=_said(settings, row),
        parent=row.parent,
        folder=str(folder.path),
        spec=_described(spec, CellSpec.stored(cell.spec)),
        imported=_source(events) if row.is_imported else None,
        environment=read_cache(folder.attempt(last) / "environment.json") or None,
        weights=None if origin is None else origin.weights,
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
        notes=tuple(notes_of(folder.path)),
        tags=tuple(sorted({tag for found in tagged.values() for tag in found})),
    )


def _said(settings: CellSettings | None, row: records.RunRow) -> Settings:
    if settings is None:
        return Settings(head=[], recipe=[])
    return Settings(
        head=fidelity.of_head(settings.head, row.backbone, row.recipe),
        recipe=fidelity.of_recipe(settings.recipe, row.recipe, settings.dataset),
    )


def _described(spec: RunSpec | None, cell: CellSpec | None) -> dict[str, Any]:
    """Return a run's description, or its cell's where it has none yet; empty: nobody knows."""
    found: dict[str, Any] = {}
    if spec is not None:
        found = to_plain(spec) | {"recipe": spec.recipe.in_full()}
    elif cell is not None:
        found = to_plain(cell.settings) | {"numerics": cell.numerics}
    return found


def _source(events: Sequence[records.EventRow]) -> str:
    """Return where an imported run was read from."""
    return events[0].raw if events else ""


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

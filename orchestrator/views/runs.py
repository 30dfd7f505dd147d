"""The runs, one document each: what `vtjobs runs` lists."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ...db import lookups, queries, records
from ...db.engine import reading
from ...jobs.documents import Document
from ...jobs.errors import NothingMatched
from ...jobs.run.eta import Eta
from ...jobs.run.selector import Selection
from ...jobs.run.spec import Axes
from ...jobs.run.states import RunState
from ...jobs.units import iso
from ..loop.context import Context
from .eta import etas_of_runs
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
    the scheduler), unknown (no heartbeat for ten minutes), or imported (trained elsewhere).
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
    miou: float | None
    """The same of a run on masks."""
    ap_box: float | None
    """The same of a run on objects."""
    eta: Eta | None
    """When it will have ended; null: it does not run."""

    @property
    def score(self) -> float | None:
        """What counts of a run, by what it was trained for; None: it has no score yet."""
        found = (self.top1, self.miou, self.ap_box)
        return next((score for score in found if score is not None), None)


def runs(
    context: Context,
    selection: Selection,
    *,
    limit: int | None = None,
    since: float | None = None,
) -> list[RunView]:
    """Return the selected runs, one document each.

    Args:
        context: workspace and ledger.
        selection: of runs.
        limit: the most that are returned.
        since: only those of which an attempt started or ended after this time.

    Raises:
        NothingMatched: there are none.
    """
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection, limit=limit if since is None else None)
        if since is not None:
            moved = lookups.moved_since(connection, since)
            rows = [row for row in rows if row.run_id in moved][:limit]
            if not rows:
                raise NothingMatched("no selected run started or ended in this time")
        scores: dict[str, dict[str, float | None]] = defaultdict(dict)
        for result in queries.results_of(connection, [row.run_id for row in rows]):
            if result.set_name == "test":
                scores[result.run_id][result.metric] = result.last
    words, left = Words(context), etas_of_running(context, rows)
    return [
        RunView(**facts_of(words, row, scores[row.run_id]), eta=left.get(row.run_id))
        for row in rows
    ]


def etas_of_running(context: Context, rows: Sequence[records.RunRow]) -> dict[str, Eta]:
    """Return run -> when it will have ended, of those that run."""
    running = {row.run_id for row in rows if row.state == RunState.RUNNING}
    return etas_of_runs(context, running) if running else {}


def facts_of(
    words: Words, row: records.RunRow, scores: Mapping[str, float | None]
) -> dict[str, Any]:
    """Return all fields of a run's view but its `eta`.

    Args:
        words: for its state.
        row: of the run.
        scores: metric -> value on the test set, at the last epoch.
    """
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
        "top1": scores.get("top1"),
        "miou": scores.get("miou"),
        "ap_box": scores.get("ap_box"),
    }


def _seconds(context: Context, row: records.RunRow) -> float | None:
    if row.started_at is None:
        return None
    return round((row.ended_at or context.clock()) - row.started_at, 1)

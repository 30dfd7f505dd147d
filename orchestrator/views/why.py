"""Why a run is where it is: one sentence, what to do, and whether waiting helps."""

from ...db import queries, records, scheduler_notes
from ...db.engine import reading
from ...jobs.documents import Document
from ...jobs.run.selector import Selection
from ...jobs.run.states import AttemptState, FailureClass, RunState
from ...jobs.workspace.markers import Closed, Marker, closed
from ..backends.base import WaitKind
from ..loop.context import Context


class Explanation(Document, frozen=True, kw_only=True):
    """Why a run is where it is: what `vtjobs why` says."""

    schema_version: int
    run_id: str
    state: str
    verdict: str
    """wait (it goes on by itself), act (somebody has to do something), never (as asked it cannot
    start), running or ended.
    """
    sentence: str
    """Why."""
    action: str
    """What to do, or nothing."""
    reason: str
    """The scheduler's own word, or nothing."""
    job: str | None
    """The scheduler's id."""


def why(context: Context, run_id: str) -> Explanation:
    """Explain a run's state."""
    with reading(context.ledger.engine) as connection:
        row = queries.list_runs(connection, Selection(names=(run_id,)))[0]
        attempts = queries.attempts_of(connection, run_id)
        job_row = queries.job_of(connection, run_id)
    match RunState(row.state):
        case RunState.PENDING:
            verdict, sentence, action, reason = _pending(context, row)
        case RunState.QUEUED:
            verdict, sentence, action, reason = _queued(context, attempts[-1], job_row)
        case RunState.RUNNING:
            where = f" on {row.host}" if row.host else ""
            verdict, sentence, action, reason = (
                "running",
                f"attempt {attempts[-1].number}{where}",
                "",
                "",
            )
        case RunState.BLOCKED:
            action = f"vtjobs why {row.parent[:8]}" if row.parent else ""
            verdict, sentence, reason = "act", f"blocked: {row.reason}", row.reason
        case _:
            verdict, sentence, action, reason = _ended(row, attempts)
    return Explanation(
        schema_version=1,
        run_id=run_id,
        state=row.state,
        verdict=verdict,
        sentence=sentence,
        action=action,
        reason=reason,
        job=job_row.job if job_row else None,
    )


Answer = tuple[str, str, str, str]
# The queue, agents that end and `vtjobs supervise` make passes; so does whoever cannot wait.
NOW = "vtjobs supervise --once"


def _pending(context: Context, row: records.RunRow) -> Answer:
    kept = closed(context.workspace, row.grid_id)(row.run_id)
    if kept is not None:
        return _kept(kept, row)
    with reading(context.ledger.engine) as connection:
        name = queries.grid_settings(connection, {row.grid_id})[row.grid_id].backend
    if fact := scheduler_notes.away(context.ledger).get(name):
        return (
            "wait",
            f"{name} cannot be reached ({fact.reason}); the run is submitted once it is back",
            "",
            fact.reason,
        )
    if row.reason:
        sentence = f"{name} did not take it yet ({row.reason}); it starts as other jobs end"
        return "wait", sentence, "", row.reason
    if row.failure == FailureClass.SKIPPED and row.signature:
        sentence = f"its last attempt did not start: {row.signature}"
        return "wait", sentence, NOW, ""
    if row.not_before > context.clock():
        seconds = row.not_before - context.clock()
        return (
            "wait",
            (
                f"next attempt in {seconds:.0f} s (the last one ended with:"
                f" {row.failure or 'a failure'})"
            ),
            "",
            row.signature or "",
        )
    if limit := _limit(context, row.grid_id):
        return "wait", limit, "", ""
    if row.parent:
        return (
            "wait",
            f"it waits for its parent stage {row.parent[:8]}",
            f"vtjobs why {row.parent[:8]}",
            "",
        )
    return "wait", "it is ready, and starts with the next pass over the workspace", NOW, ""


def _kept(kept: Closed, row: records.RunRow) -> Answer:
    match kept.marker:
        case Marker.HOLD:
            return "act", "it is on hold", f"vtjobs release {row.run_id[:8]}", kept.text
        case Marker.BREAKER:
            text = f"its grid was stopped, as several runs failed with the same error ({kept.text})"
            return "act", text, f"Fix the cause, then run: vtjobs retry {row.grid_id}", kept.text
        case Marker.CANARY:
            sentence = "it waits until the canary runs of its grid have finished their first epoch"
            return "wait", sentence, "", kept.text


def _limit(context: Context, grid_id: str) -> str:
    """Return which limit keeps a grid's pending runs from being submitted, or ""."""
    with reading(context.ledger.engine) as connection:
        settings = queries.grid_settings(connection, {grid_id})[grid_id]
        counts = queries.status_counts(connection, Selection(names=(grid_id,)))
    live = counts.get(RunState.QUEUED, 0) + counts.get(RunState.RUNNING, 0)
    if settings.max_running is not None and live >= settings.max_running:
        most = settings.max_running
        return f"max_running is reached: {most} runs of its grid are queued or running"
    if scheduler_notes.is_full(context.ledger, settings.backend):
        limit = f"{settings.backend}'s limit on submitted jobs is reached"
        return f"{limit}; the run is submitted as other jobs end"
    return ""


def _queued(
    context: Context, attempt: records.AttemptRow, job_row: records.JobRow | None
) -> Answer:
    if attempt.state == AttemptState.SUBMITTING or job_row is None:
        sentence = (
            "its submission is not confirmed yet; vtjobs asks the scheduler before it submits again"
        )
        return "wait", sentence, "", ""
    waiting = context.backend(job_row.backend).explain(
        attempt.word, job=job_row.job, token=job_row.token
    )
    if waiting is None:
        return (
            "wait",
            f"submitted to {job_row.backend}" + (f" ({attempt.word})" if attempt.word else ""),
            "",
            "",
        )
    sentence = f"{job_row.backend} job {job_row.job}: {waiting.sentence}"
    if waiting.kind is WaitKind.NEVER:
        sentence += "; as requested it can never start"
    return str(waiting.kind), sentence, waiting.action, waiting.reason


def _ended(row: records.RunRow, attempts: list[records.AttemptRow]) -> Answer:
    if row.state == RunState.COMPLETED:
        return "ended", "it completed", "", ""
    last = attempts[-1] if attempts else None
    failure = last.failure if last else None
    cause = row.reason or (last.signature if last else "")
    word = f" [{last.word}]" if last and last.word else ""
    again = "rerun" if failure == FailureClass.NO_CHECKPOINT else "retry"
    action = "" if row.state == RunState.DIVERGED else f"vtjobs {again} {row.run_id[:8]}"
    return (
        "ended",
        f"{row.state}: {cause or failure or 'cause unknown'}{word}",
        action,
        cause,
    )

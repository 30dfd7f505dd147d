"""Why a run is where it is: one sentence, what to do, and whether waiting helps."""

from ...db import queries, records, scheduler_notes
from ...db.engine import reading
from ...jobs.documents import Document
from ...jobs.run.selector import Selection
from ...jobs.run.states import AttemptState, FailureClass, RunState
from ...jobs.units import format_duration
from ...jobs.workspace.markers import Closed, Marker, closed
from ...jobs.workspace.unsent import gives_way_to
from ..backends.base import REQUEUED, SUSPENDED, WaitKind
from ..loop.context import Context
from .causes import Cause, cause_of
from .remedies import remedy
from .shown import Words


class Explanation(Document, frozen=True, kw_only=True):
    """Why a run is where it is: what `vtjobs why` says."""

    schema_version: int
    run_id: str
    state: str
    shown_state: str
    """As `runs` shows it: also cancelling, unknown or held."""
    verdict: str
    """wait (it goes on by itself), act (somebody has to do something), never (as asked it cannot
    start), running or ended.
    """
    sentence: str
    """Why."""
    action: str
    """What to do, or nothing."""
    message: str
    """The own line of the last attempt's error, in full and with its numbers, or nothing."""
    place: str
    """File and line of your code where it was raised, such as `head.py:11`; or nothing."""
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
    cause = _cause(context, row, attempts)
    match RunState(row.state):
        case RunState.PENDING:
            verdict, sentence, action, reason = _pending(context, row, cause)
        case RunState.QUEUED:
            verdict, sentence, action, reason = _kept_in_queue(context, row) or _queued(
                context, attempts[-1], job_row
            )
        case RunState.RUNNING:
            verdict, sentence, action, reason = _running(context, row, attempts[-1], job_row)
        case RunState.BLOCKED:
            action = f"vtjobs why {row.parent[:8]}{context.where}" if row.parent else ""
            verdict, sentence, reason = "act", row.reason, row.reason
        case _:
            verdict, sentence, action, reason = _ended(context, row, attempts, cause)
    return Explanation(
        schema_version=1,
        run_id=run_id,
        state=row.state,
        shown_state=Words(context).of(row),
        verdict=verdict,
        sentence=sentence,
        action=action,
        message=cause.message,
        place=cause.where,
        reason=reason,
        job=job_row.job if job_row else None,
    )


Answer = tuple[str, str, str, str]


# The queue, agents that end and `vtjobs supervise` make passes; so does whoever cannot wait.
def _now(context: Context) -> str:
    return f"vtjobs supervise --once{context.where}"


def _cause(context: Context, row: records.RunRow, attempts: list[records.AttemptRow]) -> Cause:
    """Return what ended the last attempt, if it has failed."""
    last = attempts[-1] if attempts and attempts[-1].failure else None
    return cause_of(
        context.workspace,
        row.grid_id,
        signature=last.signature if last else "",
        error=last.error if last else "",
    )


def _pending(context: Context, row: records.RunRow, cause: Cause) -> Answer:
    kept = closed(context.workspace, row.grid_id)(row.run_id)
    if kept is not None:
        return _kept(kept, row, context.where)
    with reading(context.ledger.engine) as connection:
        settings = queries.grid_settings(connection, {row.grid_id})[row.grid_id]
    name = settings.backend
    fact = scheduler_notes.away(context.ledger).get(context.part(name, settings.site))
    if fact is not None and not fact.is_slow:
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
        return "wait", sentence, _now(context), ""
    if row.not_before > context.clock():
        seconds = row.not_before - context.clock()
        return (
            "wait",
            (
                f"next attempt in {seconds:.0f} s (the last one ended with"
                f" {row.failure or 'a failure'}: {cause})"
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
            f"vtjobs why {row.parent[:8]}{context.where}",
            "",
        )
    return (
        "wait",
        "it is ready, and starts with the next pass over the workspace",
        _now(context),
        "",
    )


def _kept(kept: Closed, row: records.RunRow, where: str) -> Answer:
    match kept.marker:
        case Marker.HOLD:
            return "act", "it is on hold", f"vtjobs release {row.run_id[:8]}{where}", kept.text
        case Marker.BREAKER:
            text = f"its grid was stopped, as several runs failed with the same error ({kept.text})"
            return (
                "act",
                text,
                f"Fix the cause, then run: vtjobs retry {row.grid_id}{where}",
                kept.text,
            )
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
    part = context.part(settings.backend, settings.site)
    if grid_id in scheduler_notes.kept_out(context.ledger, part):
        return context.backend(settings.backend).when_full
    return ""


def _kept_in_queue(context: Context, row: records.RunRow) -> Answer | None:
    """Return why the agent of a queued run will pass it over; None: it will not."""
    kept = closed(context.workspace, row.grid_id)(row.run_id)
    is_cancelled = row.cancelled_through >= (row.attempt or 0)
    return None if kept is None or is_cancelled else _kept(kept, row, context.where)


def _queued(
    context: Context, attempt: records.AttemptRow, job_row: records.JobRow | None
) -> Answer:
    if other := gives_way_to(context.workspace, attempt.token):
        sentence = (
            f"its grid gave its place to job {other}, which had waited for it; it is submitted once"
            " that job has begun"
        )
        return "wait", sentence, "", ""
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
    action = waiting.action.replace("{run}", f"{attempt.run_id[:8]}{context.where}")
    return str(waiting.kind), sentence, action, waiting.reason


def _running(
    context: Context,
    row: records.RunRow,
    attempt: records.AttemptRow,
    job_row: records.JobRow | None,
) -> Answer:
    if job_row is not None and Words(context).of(row) in (SUSPENDED, REQUEUED):
        # It has begun, and the scheduler has taken its place away.
        return _queued(context, attempt, job_row)
    where = f" on {row.host}" if row.host else ""
    return "running", f"attempt {attempt.number}{where}", "", ""


def _ended(
    context: Context, row: records.RunRow, attempts: list[records.AttemptRow], cause: Cause
) -> Answer:
    last = attempts[-1] if attempts else None
    reason = row.reason or (last.signature if last else "")
    match RunState(row.state):
        case RunState.COMPLETED:
            return "ended", _source(row) or _completion(attempts), "", ""
        case RunState.CANCELLED:
            return (
                "ended",
                _cancellation(attempts),
                f"vtjobs retry {row.run_id[:8]}{context.where}",
                reason,
            )
    with reading(context.ledger.engine) as connection:
        settings = queries.grid_settings(connection, {row.grid_id})[row.grid_id]
    action = remedy(
        FailureClass(last.failure) if last and last.failure else None,
        cause,
        run_ids=[row.run_id],
        settings=settings,
        where=context.where,
    )
    if row.reason and (last is None or row.reason != last.signature):
        # Several attempts led to it; the last one's error alone does not say why it was given up.
        told = f"{row.reason}; the last one: {cause}" if cause.message else row.reason
    else:
        told = str(cause)
    word = f" [{last.word}]" if last and last.word and not cause.was_raised else ""
    return "ended", f"{told or (last and last.failure) or 'cause unknown'}{word}", action, reason


def _source(row: records.RunRow) -> str:
    return "vtjobs did not train it" if row.is_imported else ""


def _completion(attempts: list[records.AttemptRow]) -> str:
    done = [attempt for attempt in attempts if attempt.state == AttemptState.COMPLETED]
    if not done:
        return "it completed"
    last = done[-1]
    epochs = f" after epoch {last.epoch}" if last.epoch is not None else ""
    took = (
        f", in {format_duration(last.ended_at - last.started_at)}"
        if last.ended_at and last.started_at
        else ""
    )
    return f"attempt {last.number} finished{epochs}{took}"


def _cancellation(attempts: list[records.AttemptRow]) -> str:
    started = [attempt for attempt in attempts if attempt.started_at is not None]
    if not started:
        return "it was cancelled before it started"
    last = attempts[-1]
    if last.started_at is None:
        before = f"attempt {started[-1].number} had trained before"
        return f"attempt {last.number} was cancelled before it started; {before}"
    epoch = f" in epoch {last.epoch}" if last.epoch is not None else ""
    # The state's own word as a text says nothing more.
    by = f" ({last.signature})" if last.signature not in ("", RunState.CANCELLED) else ""
    return f"attempt {last.number} was stopped{epoch}{by}"

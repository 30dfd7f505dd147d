"""One pass over the workspace: ask the scheduler, read journals, repair, start what is due.

Commands that change something make a pass, as the local queue and `vtjobs supervise` do. Commands
that only read `look`: they take in what has happened, and start, cancel and submit nothing.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from ...db import bad_nodes, queries, scheduler_notes
from ...db.engine import reading
from ...db.ingest import ingest_live
from ...db.rebuild import adopt_allocations
from ...db.rows import Row
from ...jobs.errors import SchedulerUnreachable, VtjobsError
from ...jobs.run.states import AttemptState
from ...jobs.workspace.allocation import Allocation
from ...jobs.workspace.journal import SILENT_S
from ...jobs.workspace.unsent import gives_way_to
from ..backends.base import JobState, JobView, Key, Place, SubmitOutcome
from ..notices.post import post, unsent
from .asking import Seen, forget_away, observe, parts_of
from .avoid import keep_off_black_holes
from .before_start import words_before_start
from .context import Context, require_workspace
from .dispatch import dispatch, known_tokens, launch, stored_allocation
from .guard import guard
from .open_runs import open_runs
from .places import place_of
from .reconcile import Action, Decision, LiveAttempt, decide

# So much of a scheduler's word is kept; some reasons list every node.
WORD_CHARS = 200
# With many thousands of runs a pass takes a while, and this machine has other things to do as well:
# after it its process rests this many times the CPU seconds that it took, and the seconds that it
# took, but no longer than the last.
REST, MOST_REST_S = 4.0, 30.0


class Effort:
    """What a pass takes, from the making of this object on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def rest_s(self) -> float:
        """Return how many seconds its process should rest."""
        wall, cpu = time.monotonic() - self._wall, time.process_time() - self._cpu
        return min(MOST_REST_S, max(wall, REST * cpu))


@dataclass(slots=True)
class Report:
    """What a pass found and did."""

    events: int = 0
    ended: int = 0
    resubmitted: int = 0
    launched: int = 0
    unreachable: dict[str, scheduler_notes.Away] = field(default_factory=dict)
    """Backends, or clusters of one, that could not be asked, since when and why: what hangs on them
    is unknown, and was left alone.
    """
    slow: dict[str, scheduler_notes.Away] = field(default_factory=dict)
    """Backends that gave no answer in time, and may be at work: what they said last is shown. A
    backend that gave none to this pass itself is unreachable: the pass could not do its work.
    """
    silent: set[str] = field(default_factory=set)
    """Backends that gave this pass no answer."""
    asked: set[str] = field(default_factory=set)
    """Backends whose turn to be asked it was."""
    problems: list[str] = field(default_factory=list)
    """Why some grids cannot start here, and what keeps runs from starting at all."""

    @property
    def away(self) -> list[str]:
        """A sentence for each scheduler that could not be asked."""
        return [f"{name} unreachable ({why.reason})" for name, why in self.unreachable.items()]


def tick(context: Context, *, start: bool = True) -> Report:
    """Bring the ledger in line with journals and schedulers, and start pending runs.

    Args:
        context: workspace, ledger, backends.
        start: whether runs that are due are started.

    Raises:
        LedgerUnreachable, WorkspaceUnreadable: nothing was changed.
    """
    require_workspace(context)
    report = Report()
    live = _take_in(context, report, acts=True)
    report.problems += guard(context, asked=None)
    if start:
        started = dispatch(context)
        report.launched = started.attempts
        report.problems += started.problems
        report.silent |= started.unreachable.keys()
        forget_away(context, parts_of(context, live) | started.unreachable.keys())
    _tell_away(context, report, silent=report.silent)
    for name in {row.backend for row in live} | ({"local"} if report.launched else set()):
        if name not in report.unreachable:
            context.backend(name).wake()
    with contextlib.suppress(OSError):
        # An outbox that cannot be written holds up no run; the next pass notes the same.
        post(context.config, context.ledger, now=context.clock())
    return report


def look(context: Context) -> Report:
    """Bring the ledger in line with journals and schedulers, and change nothing else.

    Whoever does not own the workspace does not ask its schedulers either; where the ledger is not
    theirs to write, it is read as it is.

    Raises:
        LedgerUnreachable, WorkspaceUnreadable: nothing was changed.
    """
    require_workspace(context)
    report = Report()
    if context.keeps_ledger:
        live = _take_in(context, report, acts=False)
        forget_away(context, parts_of(context, live) | _awaited(context))
    if context.is_owner:
        report.problems += guard(context, asked=report.asked) + _asleep(context)
        report.problems += unsent(context.config, now=context.clock())
    if context.read_only:
        report.problems.append(
            f"the ledger is read-only ({context.read_only}): what it has not taken in"
            " elsewhere is not shown"
        )
    _tell_away(context, report)
    return report


def look_or_say(context: Context) -> list[str]:
    """Look, and return what somebody should know, each in a sentence; also why it was no look."""
    try:
        found = look(context)
    except (VtjobsError, OSError) as error:
        return [str(error)]
    return [*found.problems, *found.away]


def _tell_away(context: Context, report: Report, *, silent: Collection[str] = ()) -> None:
    """Say which schedulers could not be asked, and which of them are but slow.

    Args:
        context: with the ledger in which it is noted.
        report: is told.
        silent: those that are not excused by being slow.
    """
    for name, note in scheduler_notes.away(context.ledger).items():
        told = report.slow if note.is_slow and name not in silent else report.unreachable
        told[name] = note


def _awaited(context: Context) -> set[str]:
    """Return what pending runs wait for, where a scheduler is away."""
    if not scheduler_notes.away(context.ledger):
        return set()
    with reading(context.ledger.engine) as connection:
        grids = {run.grid_id for run in open_runs(connection, context.workspace, float("inf"))}
        settings = queries.grid_settings(connection, grids)
    return {context.part(found.backend, found.site) for found in settings.values()}


def _asleep(context: Context) -> list[str]:
    """Say whose queue nobody serves, although runs are in it."""
    with reading(context.ledger.engine) as connection:
        names = {row.backend for row in queries.live_attempts(connection)}
    return [
        f"runs wait in the {name} queue, and nothing serves it (was this machine restarted?). "
        f"Start it again: vtjobs supervise --once{context.where}"
        for name in sorted(names)
        if context.backend(name).is_asleep()
    ]


def _take_in(context: Context, report: Report, *, acts: bool) -> list[Any]:
    """Ask the schedulers, read the journals, and put down what follows.

    Args:
        context: workspace, ledger, backends.
        report: what happened is counted here.
        acts: whether lost submissions are repeated and open cancellations sent.

    Returns:
        The attempts that were live before.
    """
    with reading(context.ledger.engine) as connection:
        live = queries.live_attempts(connection)
    asked_at = context.clock()
    seen = observe(context, live, acts=acts) if context.is_owner else Seen()
    report.asked |= seen.asked
    report.silent |= seen.silent
    report.events = take_in_written(context)
    decided = _apply(context, _current(context, live, seen.views), report, asked_at=asked_at)
    if acts:
        _act(context, decided, report)
    return live


def take_in_written(context: Context) -> int:
    """Put down what agents wrote in the workspace; return how many events that were."""
    events = ingest_live(context.ledger, context.workspace)
    if adopt_allocations(context.ledger, context.workspace, known_tokens(context.ledger)):
        # A successor may be at work already.
        events += ingest_live(context.ledger, context.workspace)
    return events


def _current(context: Context, asked: list[Any], views: dict[Key, JobView]) -> dict[Key, JobView]:
    """Leave out what was absent when it was asked about, and has been accepted since, as another
    process saw.
    """
    unknown = {row.token for row in asked if row.job_id is None}
    doubtful = {
        key[0] for key, view in views.items() if view.state is JobState.ABSENT and key[0] in unknown
    }
    if not doubtful:
        return views
    with reading(context.ledger.engine) as connection:
        accepted = {
            row.token for row in queries.live_attempts(connection) if row.job_id is not None
        }
    return {key: view for key, view in views.items() if key[0] not in doubtful & accepted}


Decided = dict[Decision, list[tuple[Any, JobView]]]


def _apply(
    context: Context, views: dict[Key, JobView], report: Report, *, asked_at: float
) -> Decided:
    """Put down what was seen; return what is to be done about each live attempt.

    Time limits are measured at the time of asking: what came later was not seen.
    """
    decided: Decided = defaultdict(list)
    if not views:
        return decided
    with reading(context.ledger.engine) as connection:
        live = queries.live_attempts(connection)
    moves: list[Row] = []
    words: list[tuple[str, int, str]] = []
    starts: list[tuple[str, int, float]] = []
    for row in live:
        view = views.get((row.token, row.array_index))
        if view is None:
            continue
        action = decide(_attempt(context, row, view), view, now=asked_at)
        decided[action.decision].append((row, view))
        if row.started_at is None and view.starts_at not in (None, row.starts_at):
            starts.append((row.run_id, row.number, view.starts_at))
        if action.decision is Decision.END:
            moves.append(_move(context, row, view, action))
        elif view.raw[:WORD_CHARS] != row.word and (row.started_at or 0.0) < asked_at:
            # Of a run that has started since, the scheduler said how it waited.
            words.append((row.run_id, row.number, view.raw[:WORD_CHARS]))
    for token, (row, view) in {
        row.token: (row, view) for row, view in decided[Decision.ACCEPTED]
    }.items():
        context.ledger.accepted(token, view.job_id, source=view.source or row.backend)
    report.ended += context.ledger.transitions(moves)
    scheduler_notes.set_words(context.ledger, words)
    scheduler_notes.set_starts(context.ledger, starts)
    return decided


def _act(context: Context, decided: Decided, report: Report) -> None:
    """Repeat submissions that were lost, and send cancellations that have not arrived."""
    for token in dict.fromkeys(row.token for row, _ in decided[Decision.RESUBMIT]):
        # What gives way would take back at once what it has freed.
        if gives_way_to(context.workspace, token) is None:
            report.resubmitted += _relaunch(context, token, report)
    with reading(context.ledger.engine) as connection:
        live = queries.live_attempts(connection) if decided[Decision.CANCEL] else []
    report.problems += keep_off_black_holes(context)
    try:
        cancel_places(context, [row for row, _ in decided[Decision.CANCEL]], live)
    except SchedulerUnreachable as error:
        # The next pass tries again; what else this one has to do does not hang on it.
        report.problems.append(f"a cancellation could not be sent to the scheduler: {error}")


def _attempt(context: Context, row: Any, view: JobView) -> LiveAttempt:
    # A look into the run's folder, so only where it matters: there may be 100,000 live attempts.
    on_disk = 0 if view.state.is_live else context.workspace.run(row.run_id).highest_cancel()
    return LiveAttempt(
        state=AttemptState(row.state),
        accepted=row.job_id is not None,
        launching_until=row.launching_until,
        submitted_at=row.submitted_at or 0.0,
        is_cancelled=max(on_disk, row.cancelled_through) >= row.number,
        heartbeat_at=row.heartbeat_at,
        is_over=row.exit_code is not None,
    )


def _move(context: Context, row: Any, view: JobView, action: Action) -> Row:
    found = {
        "run_id": row.run_id,
        "number": row.number,
        "to": action.state,
        "source": view.source or row.backend,
        "raw": view.raw,
        "failure": action.failure,
        "signature": action.signature,
    }
    # Whoever starts says by itself where, and what went wrong.
    if view.node and not _began(context, row):
        log = context.workspace.agent_log(row.token, row.array_index, 0)
        found |= {"host": view.node, "error": words_before_start(log, view)}
    return found


def _began(context: Context, row: Any) -> bool:
    with reading(context.ledger.engine) as connection:
        return bad_nodes.began(connection, row.token, row.array_index)


def cancel_places(context: Context, rows: list[Any], live: list[Any]) -> None:
    """End the places that have nothing left to do but these attempts, and wake the agents of the
    others.

    An agent that is at work is woken, too: it may have taken on another run since, of which the
    ledger knows nothing. It ends by itself where it has not.

    Raises:
        SchedulerUnreachable: a later pass asks again.
    """
    chosen = {(row.run_id, row.number) for row in rows}
    others = {place_of(row).key for row in live if (row.run_id, row.number) not in chosen}
    others |= {place_of(row).key for row in rows if _is_at_work(row, context.clock())}
    ending: dict[str, dict[Key, Place]] = defaultdict(dict)
    waking: dict[str, dict[Key, Place]] = defaultdict(dict)
    for row in rows:
        place = place_of(row)
        chosen_places = (waking if place.key in others else ending)[row.backend]
        # Of the runs of one place, those that have begun say that it has.
        if place.is_started or place.key not in chosen_places:
            chosen_places[place.key] = place
    away: SchedulerUnreachable | None = None
    for name, places in ending.items():
        for mine in context.backend(name).by_cluster(list(places.values())).values():
            try:
                context.backend(name).cancel(mine)
            except SchedulerUnreachable as error:
                away = error
    for name, places in waking.items():
        context.backend(name).nudge(list(places.values()))
    if away is not None:
        raise away


def _is_at_work(row: Any, now: float) -> bool:
    """Whether the attempt's agent was heard of a short while ago."""
    heard_at = row.heartbeat_at or row.started_at
    # Clocks of hosts differ.
    return heard_at is not None and abs(now - heard_at) < SILENT_S


def _relaunch(context: Context, token: str, report: Report) -> bool:
    """Finish a submission that was cut off."""
    content: Allocation = stored_allocation(context.ledger, token)
    try:
        return launch(context, content, claimed=False) is SubmitOutcome.ACCEPTED
    except SchedulerUnreachable as error:
        part = context.part(content.shape.backend, content.site)
        scheduler_notes.note_away(context.ledger, part, error)
        report.silent.add(part)
        return False


def settle(context: Context, seconds: float) -> None:
    """Give agents a moment to write what they were asked for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        tick(context, start=False)
        with reading(context.ledger.engine) as connection:
            if not queries.live_attempts(connection):
                return
        time.sleep(0.2)

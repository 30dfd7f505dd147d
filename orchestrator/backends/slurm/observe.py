"""From squeue and sacct to what is so.

Asked about all places at once, and never concluding from a missing answer.

A submission whose reply was lost is looked up by the allocation's token, which is the job's name;
ids are used again after a crash of the controller. What sacct does not know is not there only if it
has had time to learn of it. An element of an array that was cancelled before it started vanishes
from both. What sacct calls pending or running proves nothing once squeue has answered without it,
but that the controller has crashed: it leaves such rows for ever. While the controller has news
that accounting has not been told yet, what accounting lacks proves nothing either.

Without accounting, what the controller accepted, never started on a node, and has forgotten was
cancelled in the queue, unless the controller has started anew since and may have lost its memory.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from ....jobs.errors import SchedulerUnreachable
from ....jobs.run.states import AttemptState, FailureClass
from ....jobs.values import changed
from ..base import JobState, JobView, Key, Place
from .query import Row, books_are_behind, controller_started_at, sacct, squeue
from .shell import NoAccounting
from .states import view_of

# Accounting learns of a job seconds after the controller.
SETTLE_S = 30.0
# How long after its submission a waiting job that the queue has lost may still be cancelled news to
# the books.
UNTOLD_S = 120.0
# Clocks of two hosts, and sacct's idea of a job's time.
SLACK_S = 3600.0


class Seen:
    """One look at the cluster."""

    def __init__(self, rows: Sequence[Row], *, ends_only: bool = False) -> None:
        self._views: dict[Key, list[JobView]] = defaultdict(list)
        self.jobs: dict[str, str] = {}
        self.live: set[str] = set()
        for row in rows:
            view = view_of(row)
            self.jobs[row.token] = row.job_id
            if view.state.is_live:
                self.live.add(row.token)
            if not ends_only or view.state is JobState.ENDED:
                self._views[row.token, row.index].append(view)

    def view(self, place: Place) -> JobView | None:
        """Return the newest view of a place: of the job that is on record, else of one that lives.

        Two submitters at once may have made two jobs of one allocation. The one that comes second
        ends at once; but where the one on record ended before it began, the other one serves the
        place. One that still waits does so only for a place that nobody has begun to serve.
        """
        found = self._views.get(place.key, [])
        known = [view for view in found if view.job_id == place.job_id]
        live = [view for view in found if view.state.is_live]
        serves = [view for view in live if view.state is JobState.RUNNING or not place.is_started]
        for wanted in ([view for view in live if view in known], serves, known, live, found):
            if wanted:
                return wanted[-1]
        return None


def look(
    places: Sequence[Place],
    *,
    now: float,
    deadline_s: float,
    settle_s: float = SETTLE_S,
    was_on_node: Callable[[Place], bool] = lambda place: place.is_started,
) -> dict[Key, JobView]:
    """Return what SLURM says about these places; those that cannot be judged yet are left out.

    Args:
        places: what is asked about.
        now: the time.
        deadline_s: how long an answer is waited for, in seconds.
        settle_s: how long after its submission a place that is missing may still turn up.
        was_on_node: whether a node has begun with a place, even if no agent came of it.

    Raises:
        SchedulerUnreachable: the controller could not be asked.
    """
    queue = Seen(squeue(deadline_s=deadline_s))
    found = {place.key: view for place in places if (view := queue.view(place)) is not None}
    missing = [place for place in places if place.key not in found]
    # What the controller has forgotten, and what it never knew.
    old = [place for place in missing if now - place.submitted_at >= settle_s]
    if not old:
        return found
    # Before sacct: what was under way at this moment may be missing from its answer.
    behind = books_are_behind(deadline_s=deadline_s)
    try:
        since = min(place.submitted_at for place in old) - SLACK_S
        books = Seen(
            sacct({place.token for place in old}, since=since, deadline_s=deadline_s),
            ends_only=True,
        )
    except NoAccounting:
        return found | _without_accounting(old, queue, was_on_node, deadline_s=deadline_s)
    except SchedulerUnreachable:
        # Says nothing about jobs: what squeue showed still holds.
        return found
    for place in old:
        if (view := books.view(place)) is not None:
            found[place.key] = view
            continue
        known = queue.jobs.get(place.token)
        if known is None and place.token not in books.live:
            known = books.jobs.get(place.token)
        # Still waiting in the books and gone from the queue: they are told seconds after it was
        # cancelled; or never, after a crash of the controller.
        untold = place.token in books.live and known is None and now - place.submitted_at < UNTOLD_S
        unclear = behind or (untold and not place.is_started)
        found[place.key] = changed(_vanished(place, known), is_settled=not unclear)
    return found


def _vanished(place: Place, known: str | None) -> JobView:
    """Judge a place that neither squeue nor sacct has."""
    job_id = place.job_id or known
    if job_id is None:
        return JobView(state=JobState.ABSENT, source="sacct")
    raw = "gone from squeue and sacct"
    if not place.is_started and known is not None:
        # The array is known, this element of it is not. Of an allocation that is unknown as a
        # whole, or lives on in the books alone, the controller has lost the memory.
        return _cancelled(job_id, raw, source="sacct")
    return _lost(place, job_id, raw, source="sacct")


def _without_accounting(
    places: Sequence[Place],
    queue: Seen,
    was_on_node: Callable[[Place], bool],
    *,
    deadline_s: float,
) -> dict[Key, JobView]:
    """Judge places that squeue lacks, where nobody keeps books."""
    found: dict[Key, JobView] = {}
    booted_at: float | None = None
    raw = "gone from squeue; no accounting"
    for place in places:
        job_id = place.job_id or queue.jobs.get(place.token)
        if job_id is None:
            found[place.key] = JobView(state=JobState.ABSENT, source="squeue")
            continue
        if booted_at is None:
            booted_at = controller_started_at(deadline_s=deadline_s)
        remembers = booted_at < place.submitted_at or place.token in queue.jobs
        if remembers and not place.is_started and not was_on_node(place):
            found[place.key] = _cancelled(job_id, raw, source="squeue")
        else:
            found[place.key] = _lost(place, job_id, raw, source="squeue")
    return found


def _cancelled(job_id: str, raw: str, *, source: str) -> JobView:
    return JobView(
        state=JobState.ENDED,
        job_id=job_id,
        raw=f"{raw}: cancelled before it started",
        end=AttemptState.CANCELLED,
        failure=FailureClass.CANCELLED,
        source=source,
    )


def _lost(place: Place, job_id: str, raw: str, *, source: str) -> JobView:
    failure = FailureClass.AGENT_DIED if place.is_started else FailureClass.NOT_SUBMITTED
    return JobView(
        state=JobState.ENDED,
        job_id=job_id,
        raw=raw,
        end=AttemptState.LOST,
        failure=failure,
        source=source,
    )

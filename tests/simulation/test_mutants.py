"""The simulation finds mistakes: each of these, planted, is caught by one of a few seeds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert

from vtjobs.db import bad_nodes, ingest
from vtjobs.jobs.atomic_files import make_folder, touch_new
from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.paths import RunFolder
from vtjobs.orchestrator.backends.base import JobState, JobView, Submission, SubmitOutcome
from vtjobs.orchestrator.backends.slurm import backend, observe, query, states, submission
from vtjobs.orchestrator.loop import avoid, dispatch, tick

from . import seams
from .history import play
from .profile import Profile, draw
from .watch import Violation

pytestmark = pytest.mark.long

SEEDS = range(3000, 3012)
Plant = Callable[[pytest.MonkeyPatch], None]


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """Attempts start without a claim that others could see."""
    patch.setattr(RunFolder, "claim", lambda self, number: True)


def first_claim_holds_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A claim is the first one's for ever.

    Whoever came first takes those above for nobody, and goes on.
    """
    patch.setattr(RunFolder, "highest_claim", lambda self: 0)
    patch.setattr(
        RunFolder,
        "claim",
        lambda self, number: touch_new(make_folder(self.claims) / f"{number:04d}"),
    )


def unclear_is_a_no(patch: pytest.MonkeyPatch) -> None:
    """A submission whose reply was lost is taken for refused for now, and repeated at once."""

    def outcome_of(text: str) -> Submission:
        found = submission.outcome_of(text)
        unclear = found.outcome is SubmitOutcome.UNCLEAR
        return Submission(outcome=SubmitOutcome.LATER, reason=found.reason) if unclear else found

    patch.setattr(seams, "outcome_of", outcome_of)


def unreachable_is_absent(patch: pytest.MonkeyPatch) -> None:
    """A controller that does not answer has no jobs."""
    asked = query.squeue

    def squeue(*, deadline_s: float) -> Any:
        try:
            return asked(deadline_s=deadline_s)
        except SchedulerUnreachable:
            return []

    patch.setattr(observe, "squeue", squeue)


def books_are_up_to_date(patch: pytest.MonkeyPatch) -> None:
    """What accounting says holds, whatever the controller has not told it yet."""
    patch.setattr(observe, "books_are_behind", lambda deadline_s: False)


def vanished_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A pending element that is gone from both queries was lost, and may be submitted again."""
    patch.setattr(
        observe,
        "_vanished",
        lambda place, known, accounted: JobView(state=JobState.ENDED, end=None),
    )


def cancel_is_not_marked(patch: pytest.MonkeyPatch) -> None:
    """A cancel is written into the ledger, and not into the workspace that agents read."""
    patch.setattr(RunFolder, "cancel", lambda self, number: None)


def offsets_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What was read of a journal is not written down with what was found there."""
    patch.setattr(ingest, "write_progress", lambda connection, progress: None)
    patch.setattr(ingest, "insert_new", lambda connection, table: insert(table))
    patch.setattr(ingest, "_write_offsets", lambda connection, rows: None)


def retries_without_end(patch: pytest.MonkeyPatch) -> None:
    """The policy gives every failure another try."""
    from vtjobs.jobs.run import derive as machine
    from vtjobs.jobs.run.retry import judge

    patch.setattr(
        machine,
        "judge",
        lambda history, tries, may_halve: judge(history, tries=100, may_halve=may_halve),
    )


def successors_are_not_found(patch: pytest.MonkeyPatch) -> None:
    """Allocations that agents wrote are left unknown."""
    for module in (tick, dispatch):
        patch.setattr(module, "adopt_allocations", lambda *arguments: 0)


def black_holes_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """A node on which no agent can start is like any other."""
    for module in (avoid, bad_nodes):
        patch.setattr(module, "black_holes", lambda connection, *, now: [])


def what_waits_takes_black_holes(patch: pytest.MonkeyPatch) -> None:
    """Only new jobs avoid a node on which no agent can start."""
    patch.setattr(backend.SlurmBackend, "avoid", lambda self, places, nodes: None)


def new_jobs_take_black_holes(patch: pytest.MonkeyPatch) -> None:
    """Only what waits already is kept off a node on which no agent can start."""
    patch.setattr(bad_nodes, "black_holes", lambda connection, *, now: [])


def suspended_is_over(patch: pytest.MonkeyPatch) -> None:
    """A job that an administrator suspends counts as lost."""
    patch.setitem(states._ENDS, "SUSPENDED", (AttemptState.LOST, FailureClass.AGENT_DIED))


def held_is_cancelled(patch: pytest.MonkeyPatch) -> None:
    """A job that an administrator holds counts as cancelled."""

    def view_of(row: query.Row) -> JobView:
        found = states.view_of(row)
        if row.reason != "JobHeldAdmin":
            return found
        return changed(
            found,
            state=JobState.ENDED,
            end=AttemptState.CANCELLED,
            failure=FailureClass.CANCELLED,
        )

    patch.setattr(observe, "view_of", view_of)


def without_accounting_the_cancelled_are_lost(patch: pytest.MonkeyPatch) -> None:
    """What somebody cancels in the queue is submitted again where nobody keeps books."""
    patch.setattr(
        observe,
        "_cancelled",
        lambda job_id, raw, *, source: JobView(state=JobState.ENDED, end=None, source=source),
    )


ZOMBIES = {"fault": 0.7, "fates": {"node_zombie": 1.0}}
LOST = {"lost_reply": 0.6, "fault": 0.1, "failure": 0.0}
# Few nodes: the mistake harms what waits.
DEAF = {"accounting": False, "outage": 6.0, "fault": 0.1, "failure": 0.0, "nodes": 3}
LATE = {"accounting": True, "slow_books": 0.7, "meddling": 30.0, "failure": 0.0, "nodes": 4}
STALLS = {"fault": 0.9, "fates": {"stalled": 1.0}, "failure": 0.0, "lost_reply": 0.0}
AWAY = {**STALLS, "outage": 3.0, "catch_up_s": 600.0, "min_job_age_s": 2.0, "meddling": 30.0}
FRAIL = {"failure": 0.6, "tries": 1, "fault": 0.0, "meddling": 0.0}
CALM = {"fault": 0.0, "failure": 0.0, "lost_reply": 0.0, "outage": 0.0, "meddling": 0.0}
HOLES = {**CALM, "nodes": 4, "black_holes": 2, "kill": 0.0, "pause": 0.0}
ADMINS = {**CALM, "nodes": 6, "admins": 40.0}
NO_BOOKS = {**LATE, "meddling": 15.0, "accounting": False, "outage": 0.0, "min_job_age_s": 300.0}
# Each with the weather in which it shows.
MUTANTS: list[tuple[Plant, dict[str, Any]]] = [
    (no_fencing, ZOMBIES),
    (first_claim_holds_for_ever, ZOMBIES),
    (unclear_is_a_no, LOST),
    (unreachable_is_absent, DEAF),
    (books_are_up_to_date, AWAY),
    (vanished_is_lost, LATE),
    (cancel_is_not_marked, {"meddling": 30.0}),
    (offsets_are_forgotten, {}),
    (retries_without_end, FRAIL),
    (successors_are_not_found, {"walltime_s": 180}),
    (black_holes_are_not_seen, HOLES),
    (what_waits_takes_black_holes, HOLES),
    (new_jobs_take_black_holes, HOLES),
    (suspended_is_over, ADMINS),
    (held_is_cancelled, ADMINS),
    (without_accounting_the_cancelled_are_lost, NO_BOOKS),
]


STORMS = [ZOMBIES, LOST, DEAF, LATE, AWAY, FRAIL, HOLES, ADMINS, NO_BOOKS]


@pytest.mark.parametrize(
    ("plant", "weather"), MUTANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_mistake_is_caught(
    plant: Plant, weather: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        for seed in SEEDS:
            play(seed, 30, _stormy(seed, weather))


@pytest.mark.parametrize("weather", STORMS)
def test_without_a_mistake_the_same_weather_does_no_harm(weather: dict[str, Any]) -> None:
    for seed in SEEDS[:2]:
        play(seed, 30, _stormy(seed, weather))


def _stormy(seed: int, weather: dict[str, Any]) -> Profile:
    """Return settings under which runs take long and faults are many."""
    profile = replace(
        draw(seed, 30), accounting=True, fault=0.5, failure=0.1, lost_reply=0.3, outage=1.5, meddling=10.0, nodes=20,
        walltime_s=3600, handover=True, lose_ledger=0, canary=False, max_jobs=None, epochs=8, stages=False,
    )  # fmt: skip
    return replace(profile, **weather)

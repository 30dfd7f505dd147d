"""What an agent tells from files alone: the same as a pass tells from the ledger."""

import pytest

from vtjobs.jobs.config.notices import NoticeSettings
from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.notices.from_node import notices_of
from vtjobs.orchestrator.notices.happened import notices
from vtjobs.orchestrator.notices.outbox import Notice
from vtjobs.orchestrator.requests.actions import cancel, retry
from vtjobs.orchestrator.views.status import status

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab

BOTH = NoticeSettings(on=("finish", "fail"))
FAILED = ended("failed", "user_error", signature="Error: #", error="Error: 7")


@pytest.fixture
def submitted(quiet_lab: Lab) -> Lab:
    """A grid of two runs that a scheduler has."""
    quiet_lab.submit(tiny_grid(extra="retries: 1"))
    quiet_lab.tick()
    return quiet_lab


def from_files(submitted: Lab) -> list[Notice]:
    (grid,) = status(submitted.context, Selection()).grids
    return notices_of(submitted.context.workspace, [grid.grid_id], list(submitted.states()), BOTH)


def from_ledger(submitted: Lab) -> list[Notice]:
    submitted.tick(start=False)
    context = submitted.context
    return notices(context.ledger, context.workspace, BOTH, since=0.0, now=0.0)


def test_while_a_run_is_to_come_nothing_has_ended(submitted: Lab) -> None:
    one, other = submitted.states()
    assert from_files(submitted) == []
    journal(submitted, one, 1, started(), scored(60.0), ended("completed"))
    assert from_files(submitted) == []
    journal(submitted, other, 1, started(), scored(60.0))
    assert from_files(submitted) == []


def test_the_end_of_a_grid_is_the_same_notice(submitted: Lab) -> None:
    for run_id in submitted.states():
        journal(submitted, run_id, 1, started(), scored(60.0), ended("completed"))
    (notice,) = from_files(submitted)
    assert "has ended: 2 completed" in notice.text
    assert from_ledger(submitted) == [notice]


def test_a_run_that_failed_is_the_same_notice(submitted: Lab) -> None:
    one, other = submitted.states()
    journal(submitted, one, 1, started(), FAILED)
    (lost,) = from_files(submitted)
    assert lost.run_id == one and "failed (user_error)" in lost.text
    journal(submitted, other, 1, started(), scored(60.0), ended("completed"))
    found = from_files(submitted)
    assert {notice.kind for notice in found} == {"finish", "fail"}
    assert sorted(from_ledger(submitted), key=repr) == sorted(found, key=repr)


@pytest.fixture
def patient_lab(quiet_lab: Lab) -> Lab:
    """A grid of two runs that have failed once, and have tries left."""
    runs = quiet_lab.submit(tiny_grid(extra="retries: 3"))
    quiet_lab.tick()
    for run_id in runs:
        journal(quiet_lab, run_id, 1, started(), ended("failed", "communication", signature="x"))
    return quiet_lab


def test_a_run_that_is_tried_again_has_not_failed(patient_lab: Lab) -> None:
    assert from_files(patient_lab) == []


def test_what_a_scheduler_has_again_is_to_come(submitted: Lab) -> None:
    for run_id in submitted.states():
        journal(submitted, run_id, 1, started(), FAILED)
    submitted.tick(start=False)
    one, _ = submitted.states()
    retry(submitted.open(), [one], clean=False)
    submitted.tick()
    assert [notice.kind for notice in from_files(submitted)] == ["fail"]


def test_a_grid_that_was_cancelled_before_its_last_run_began_has_ended(submitted: Lab) -> None:
    one, other = submitted.states()
    journal(submitted, one, 1, started(), scored(60.0), ended("completed"))
    cancel(submitted.open(), [other])
    (notice,) = from_files(submitted)
    assert "has ended: 1 cancelled, 1 completed" in notice.text
    # Of two attempts, as the ledger counts them.
    assert notice.key.endswith("-2")


def test_what_nobody_wants_to_hear_is_not_told(submitted: Lab) -> None:
    for run_id in submitted.states():
        journal(submitted, run_id, 1, started(), FAILED)
    (grid,) = status(submitted.context, Selection()).grids
    settings = NoticeSettings(on=("stall",))
    workspace = submitted.context.workspace
    assert notices_of(workspace, [grid.grid_id], list(submitted.states()), settings) == []


def test_a_number_that_a_cancel_used_up_is_no_attempt(quiet_lab: Lab) -> None:
    one, other = quiet_lab.submit(tiny_grid())
    cancel(quiet_lab.open(), [other])
    quiet_lab.tick()
    journal(quiet_lab, one, 1, started(), scored(60.0), ended("completed"))
    retry(quiet_lab.open(), [other], clean=False)
    quiet_lab.tick()
    (attempt,) = quiet_lab.attempts(other)
    journal(quiet_lab, other, attempt.number, started(attempt=attempt.number), ended("completed"))
    (notice,) = from_files(quiet_lab)
    assert from_ledger(quiet_lab) == [notice]


def test_the_runs_of_a_grid_belong_to_its_latest_submission(submitted: Lab) -> None:
    submitted.submit(tiny_grid(name="wider", heads="[supervised, relvit]"))
    submitted.tick()
    for run_id in submitted.states():
        journal(submitted, run_id, 1, started(), scored(60.0), ended("completed"))
    workspace = submitted.context.workspace
    grids = [grid.grid_id for grid in status(submitted.context, Selection()).grids]
    found = notices_of(workspace, grids, list(submitted.states()), BOTH)
    assert [notice.text.partition("-")[0] for notice in found] == ["wider"]
    assert [notice.key for notice in from_ledger(submitted)] == [one.key for one in found]

"""What is concluded from squeue and sacct together."""

import pytest

from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.orchestrator.backends.base import JobState, JobView, Key, Place
from vtjobs.orchestrator.backends.slurm.observe import SETTLE_S, SLACK_S, UNTOLD_S, look

from ....support.scheduler import Commands

NOW = 1_000_000.0
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
OTHER = "60|N/A|RUNNING|None|gpu1|N/A|N/A|somebody's"


def place(
    index: int = 0, *, job_id: str | None = "34", age_s: float = 3600.0, **facts: bool
) -> Place:
    return Place(
        token="vtj-1", index=index, job_id=job_id, submitted_at=NOW - age_s, is_array=True, **facts
    )


def seen(*places: Place) -> dict[Key, JobView]:
    return look(places, now=NOW, deadline_s=10)


def one(found: Place) -> JobView:
    return seen(found)[found.key]


@pytest.fixture
def cluster(commands: Commands) -> Commands:
    """A cluster that knows nothing of ours."""
    commands.prints("squeue", OTHER)
    commands.prints("sacct", "")
    return commands


def test_what_squeue_shows_holds_and_sacct_is_not_asked(cluster: Commands) -> None:
    cluster.prints(
        "squeue", "34|0|RUNNING|None|gpu0|N/A|N/A|vtj-1\n34|1-2%2|PENDING|Resources||N/A|N/A|vtj-1"
    )
    found = seen(place(0), place(1), place(2))
    assert [view.state for view in found.values()] == [
        JobState.RUNNING,
        JobState.QUEUED,
        JobState.QUEUED,
    ]
    assert cluster.calls("sacct") == []


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_jobs_of_one_allocation_the_one_on_record_counts(
    cluster: Commands, order: int
) -> None:
    lines = ["34|0|RUNNING|None|gpu0|N/A|N/A|vtj-1", "35|0|FAILED|None|gpu1|999999|N/A|vtj-1"]
    cluster.prints("squeue", "\n".join(lines[::order]))
    assert one(place()).state is JobState.RUNNING
    assert one(place(job_id="35", is_started=True)).state is JobState.RUNNING, (
        "the other one may be what serves it: who comes second ends within seconds"
    )
    waiting = [line.replace("RUNNING", "PENDING") for line in lines]
    cluster.prints("squeue", "\n".join(waiting[::order]))
    assert one(place(job_id="35", is_started=True)).state is JobState.ENDED
    cluster.prints("squeue", "\n".join(lines[::order]))
    assert one(place(job_id=None)).state is JobState.RUNNING, (
        "where none is on record, the one that lives"
    )


def test_of_two_jobs_of_one_allocation_the_other_begins_where_the_one_on_record_did_not(
    cluster: Commands,
) -> None:
    lines = ["34|0|FAILED|None|gpu1|999999|N/A|vtj-1", "35|0|PENDING|Priority||N/A|N/A|vtj-1"]
    cluster.prints("squeue", "\n".join(lines))
    found = one(place(job_id="34"))
    assert (found.state, found.job_id) == (JobState.QUEUED, "35")


def test_many_places_cost_one_call_of_each_command(cluster: Commands) -> None:
    seen(*(place(index) for index in range(300)))
    assert [len(cluster.calls(name)) for name in ("squeue", "sacct")] == [1, 1]


def test_a_submission_whose_reply_was_lost_is_found_by_its_name(cluster: Commands) -> None:
    cluster.prints("squeue", "34|0|PENDING|Priority||N/A|N/A|vtj-1")
    found = one(place(job_id=None, age_s=1))
    assert (found.state, found.job_id, found.source) == (JobState.QUEUED, "34", "squeue")


def test_a_submission_whose_reply_was_lost_and_that_has_ended_is_found_by_its_name(
    cluster: Commands,
) -> None:
    cluster.prints("sacct", "34_0|TIMEOUT|0:0|999999|gpu0|None|vtj-1")
    found = one(place(job_id=None))
    assert (found.state, found.job_id, found.end) == (JobState.ENDED, "34", AttemptState.TIMEOUT)


def test_nothing_is_concluded_before_accounting_had_time_to_learn(cluster: Commands) -> None:
    assert seen(place(job_id=None, age_s=SETTLE_S - 1), place(1, age_s=SETTLE_S - 1)) == {}
    assert cluster.calls("sacct") == []
    assert one(place(job_id=None, age_s=SETTLE_S + 1)).state is JobState.ABSENT


def test_sacct_is_asked_from_well_before_the_oldest_submission(cluster: Commands) -> None:
    seen(place(0, age_s=100), place(1, age_s=7200))
    earlier = cluster.calls("sacct")
    seen(place(0, age_s=100))
    assert cluster.calls("sacct")[1] > earlier[0], "the younger one needs less of the past"
    assert SLACK_S >= 3600, "two hosts may differ by a switch to summer time"


def test_a_submission_that_neither_knows_is_absent(cluster: Commands) -> None:
    found = one(place(job_id=None))
    assert (found.state, found.job_id, found.source) == (JobState.ABSENT, "", "sacct")


def test_an_array_that_neither_knows_is_absent_as_a_whole(cluster: Commands) -> None:
    found = seen(*(place(index, job_id=None) for index in range(3)))
    assert {view.state for view in found.values()} == {JobState.ABSENT}


def test_an_element_of_a_known_array_that_vanished_before_it_started_was_cancelled(
    cluster: Commands,
) -> None:
    cluster.prints("squeue", "34|0|RUNNING|None|gpu0|N/A|N/A|vtj-1")
    found = one(place(3))
    assert (found.state, found.end, found.failure) == (
        JobState.ENDED, AttemptState.CANCELLED, FailureClass.CANCELLED,
    )  # fmt: skip
    assert found.raw == "gone from squeue and sacct: cancelled before it started"


def test_a_job_that_is_unknown_as_a_whole_was_forgotten_and_not_cancelled(
    cluster: Commands,
) -> None:
    found = one(place(3))
    assert (found.end, found.failure) == (AttemptState.LOST, FailureClass.NOT_SUBMITTED)


@pytest.mark.parametrize("where", ["squeue", "sacct"])
def test_an_array_is_known_by_any_of_its_elements(cluster: Commands, where: str) -> None:
    lines = {
        "squeue": "34|0|RUNNING|None|gpu0|N/A|N/A|vtj-1",
        "sacct": "34_0|COMPLETED|0:0|999999|gpu0|None|vtj-1",
    }
    cluster.prints(where, lines[where])
    found = seen(place(0, job_id=None), place(3, job_id=None))["vtj-1", 3]
    assert (found.state, found.job_id, found.end) == (JobState.ENDED, "34", AttemptState.CANCELLED)


def test_a_started_place_that_vanished_lost_its_agent(cluster: Commands) -> None:
    found = one(place(is_started=True))
    assert (found.state, found.end, found.failure) == (
        JobState.ENDED,
        AttemptState.LOST,
        FailureClass.AGENT_DIED,
    )
    assert found.raw == "gone from squeue and sacct"


def test_what_the_controller_has_forgotten_is_asked_of_accounting(cluster: Commands) -> None:
    cluster.prints("sacct", "34_0|NODE_FAIL|0:0|999000|gpu0|None|vtj-1")
    found = one(place(is_started=True))
    assert (found.end, found.ended_at, found.source) == (AttemptState.NODE_FAIL, 999000.0, "sacct")


def test_accounting_that_is_away_says_nothing_about_jobs(cluster: Commands) -> None:
    cluster.prints("squeue", "34|0|RUNNING|None|gpu0|N/A|N/A|vtj-1")
    cluster.fails("sacct", "sacct: error: Problem talking to the database: Connection refused")
    found = seen(place(0), place(1), place(2, job_id=None))
    assert {key: view.state for key, view in found.items()} == {("vtj-1", 0): JobState.RUNNING}


BEHIND = "Agent queue size:     3\nAgent count:     0\nDBD Agent queue size: {}"


@pytest.mark.parametrize("known", ["", "34_0|RUNNING|0:0|Unknown|gpu0|None|vtj-1"])
def test_while_the_controller_has_news_for_accounting_what_the_books_lack_proves_nothing(
    cluster: Commands, known: str
) -> None:
    cluster.prints("sacct", known)
    started, unclear = place(is_started=True), place(1, job_id=None)
    cluster.prints("sdiag", BEHIND.format(7))
    assert [view.is_settled for view in seen(started, unclear).values()] == [False, False]
    cluster.prints("sdiag", BEHIND.format(0))
    assert [view.is_settled for view in seen(started, unclear).values()] == [True, True]


def test_an_end_in_the_books_holds_while_other_news_is_under_way(cluster: Commands) -> None:
    cluster.prints("sdiag", BEHIND.format(7))
    cluster.prints("sacct", "34_0|CANCELLED by 1000|0:0|999000|gpu0|None|vtj-1")
    found = one(place(is_started=True))
    assert (found.end, found.is_settled) == (AttemptState.CANCELLED, True)


def test_a_site_that_does_not_tell_what_is_under_way_is_taken_to_be_up_to_date(
    cluster: Commands,
) -> None:
    cluster.fails("sdiag", "slurm_get_statistics: Access/permission denied")
    assert one(place(is_started=True)).end is AttemptState.LOST


def test_a_controller_that_goes_away_between_two_questions_leaves_it_open_what_is_under_way(
    cluster: Commands,
) -> None:
    cluster.fails("sdiag", AWAY)
    assert not one(place(is_started=True)).is_settled


def test_a_controller_that_is_away_says_nothing_at_all(cluster: Commands) -> None:
    cluster.fails("squeue", AWAY)
    cluster.prints("sacct", "34_0|COMPLETED|0:0|999999|gpu0|None|vtj-1")
    with pytest.raises(SchedulerUnreachable, match="Unable to contact slurm controller"):
        seen(place(0))


@pytest.mark.parametrize(
    ("what", "booted_at", "state", "failure"),
    [
        (place(), 1, JobState.ENDED, FailureClass.CANCELLED),
        (place(), int(NOW), JobState.ENDED, FailureClass.NOT_SUBMITTED),
        (place(is_started=True), 1, JobState.ENDED, FailureClass.AGENT_DIED),
        (place(job_id=None), 1, JobState.ABSENT, None),
    ],
    ids=["cancelled in the queue", "a controller that started anew", "started", "never there"],
)
def test_without_accounting_what_the_queue_has_forgotten_is_judged_by_whether_it_started(
    cluster: Commands, what: Place, booted_at: int, state: JobState, failure: FailureClass | None
) -> None:
    cluster.fails("sacct", "Slurm accounting storage is disabled")
    cluster.prints("scontrol", f"BOOT_TIME               = {booted_at}")
    found = one(what)
    assert (found.state, found.failure, found.source) == (state, failure, "squeue")


def test_without_accounting_a_place_that_a_node_had_begun_with_was_not_cancelled(
    cluster: Commands,
) -> None:
    cluster.fails("sacct", "Slurm accounting storage is disabled")
    cluster.prints("scontrol", "BOOT_TIME               = 1")
    (found,) = look([place()], now=NOW, deadline_s=10, was_on_node=lambda _: True).values()
    assert (found.end, found.failure) == (AttemptState.LOST, FailureClass.NOT_SUBMITTED)


def test_a_waiting_job_that_only_the_books_still_have_is_not_judged_soon_after_its_submission(
    cluster: Commands,
) -> None:
    cluster.prints("sdiag", BEHIND.format(0))
    cluster.prints("sacct", "34|PENDING|0:0|Unknown|None assigned|None|vtj-1")
    assert not one(place(age_s=UNTOLD_S - 1)).is_settled
    # Later the controller has lost its memory: such rows stay for ever.
    late = one(place(age_s=UNTOLD_S + 1))
    assert (late.is_settled, late.end) == (True, AttemptState.LOST)
    assert one(place(age_s=UNTOLD_S - 1, is_started=True)).is_settled

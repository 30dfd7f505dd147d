"""What Ray says of its jobs, as ours."""

from typing import Any

import pytest

from vtjobs.jobs.workspace.journal import LEASE_S
from vtjobs.orchestrator.backends.base import JobState, JobView, Place
from vtjobs.orchestrator.backends.ray.observe import UNKNOWN, given_up, look, view_of

DIED = (
    "Job supervisor actor died: The actor died unexpectedly before finishing this"
    " task.\n\tclass_name: JobSupervisor\n"
)
# Ray's list of what may have ended a process that it saw vanish: no evidence of any of it.
GUESSES = (
    DIED
    + "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer."
)
NODE = DIED + "The actor died because its node has died. Node Id: 8ca8578c"
MEMORY = DIED + "Task was killed due to the node running low on memory."


def job(status: str, **fields: Any) -> dict[str, Any]:
    return {"submission_id": "vtj-1", "status": status, "error_type": None, "message": "", **fields}


def one(status: str, **fields: Any) -> JobView:
    return view_of(job(status, **fields))


def test_a_job_that_waits_is_queued_and_one_that_works_is_running() -> None:
    assert [one(word).state for word in ("PENDING", "RUNNING")] == [
        JobState.QUEUED,
        JobState.RUNNING,
    ]


def test_a_word_that_is_not_known_proves_no_end() -> None:
    assert one("PAUSED").state is JobState.RUNNING


@pytest.mark.parametrize(
    ("status", "fields", "end"),
    [
        ("STOPPED", {}, ("cancelled", "cancelled")),
        ("SUCCEEDED", {"driver_exit_code": 0}, ("failed", "no_result")),
        (
            "FAILED",
            {"error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": -9},
            ("lost", "agent_died"),
        ),
        (
            "FAILED",
            {"error_type": "JOB_SUPERVISOR_ACTOR_DIED", "message": GUESSES},
            ("lost", "agent_died"),
        ),
        (
            "FAILED",
            {"error_type": "JOB_SUPERVISOR_ACTOR_DIED", "message": NODE},
            ("node_fail", "hardware"),
        ),
        (
            "FAILED",
            {"error_type": "JOB_SUPERVISOR_ACTOR_DIED", "message": MEMORY},
            ("out_of_memory", "out_of_memory"),
        ),
        (
            "FAILED",
            {"error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "message": NODE},
            ("lost", "agent_died"),
        ),
        ("FAILED", {"error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"}, ("superseded", "skipped")),
        ("FAILED", {"error_type": "RUNTIME_ENV_SETUP_FAILURE"}, ("lost", "not_submitted")),
        ("FAILED", {}, ("lost", "agent_died")),
    ],
)
def test_an_end_says_what_becomes_of_an_attempt_that_left_no_record(
    status: str, fields: dict[str, Any], end: tuple[str, str]
) -> None:
    view = one(status, **fields)
    assert (view.state, view.end, view.failure) == (JobState.ENDED, *end)


def test_the_raw_word_keeps_what_ended_it() -> None:
    assert one("FAILED", driver_exit_code=-9).raw == "FAILED signal 9"
    assert one("FAILED", driver_exit_code=76).raw == "FAILED exit 76"
    assert (
        one("FAILED", error_type="JOB_SUPERVISOR_ACTOR_DIED").raw == "FAILED supervisor actor died"
    )


def test_times_are_seconds() -> None:
    assert one("SUCCEEDED", end_time=1_700_000_000_500).ended_at == 1_700_000_000.5


def test_what_was_never_accepted_and_is_not_there_is_absent() -> None:
    assert look([Place(token="vtj-2")], [job("RUNNING")])["vtj-2"].state is JobState.ABSENT


def test_a_submission_that_nobody_can_be_asked_about_is_not_repeated_there() -> None:
    view = given_up(Place(token="vtj-2"))
    assert (view.state, view.failure, view.patience_s) == (JobState.ENDED, "not_submitted", LEASE_S)


@pytest.mark.parametrize(("started", "failure"), [(True, "agent_died"), (False, "not_submitted")])
def test_what_ray_has_forgotten_is_left_to_its_lease(started: bool, failure: str) -> None:
    view = look([Place(token="vtj-2", job_id="vtj-2", is_started=started)], [])["vtj-2"]
    assert (view.state, view.end, view.failure, view.raw) == (
        JobState.ENDED,
        "lost",
        failure,
        UNKNOWN,
    )
    assert (view.is_settled, view.patience_s) == (False, LEASE_S)

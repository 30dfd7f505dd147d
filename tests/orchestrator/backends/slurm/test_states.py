"""SLURM's words as ours."""

import pytest

from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.orchestrator.backends.base import JobState
from vtjobs.orchestrator.backends.slurm.query import Row
from vtjobs.orchestrator.backends.slurm.states import first_node, is_known, view_of

QUEUED = ["PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"]
RUNNING = [
    "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT",
]  # fmt: skip
ENDS = {
    "COMPLETED": ("failed", "no_result"),
    "FAILED": ("lost", "agent_died"),
    "LAUNCH_FAILED": ("node_fail", "hardware"),
    "RECONFIG_FAIL": ("node_fail", "hardware"),
    "BOOT_FAIL": ("node_fail", "hardware"),
    "NODE_FAIL": ("node_fail", "hardware"),
    "OUT_OF_MEMORY": ("out_of_memory", "out_of_memory"),
    "TIMEOUT": ("timeout", "walltime"),
    "DEADLINE": ("timeout", "walltime"),
    "PREEMPTED": ("preempted", "stopped"),
    "REVOKED": ("lost", "not_submitted"),
    "CANCELLED": ("cancelled", "cancelled"),
}


def row(state: str, **fields: object) -> Row:
    plain = {"source": "sacct", "token": "vtj-1", "job_id": "34", "index": 0}
    return Row(**{**plain, "state": state, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("word", QUEUED)
def test_a_job_that_waits_is_queued(word: str) -> None:
    found = view_of(row(word, reason="Priority"))
    assert (found.state, found.reason, found.end, is_known(word)) == (
        JobState.QUEUED,
        "Priority",
        None,
        True,
    )


@pytest.mark.parametrize("word", RUNNING)
def test_a_job_whose_processes_may_live_is_running(word: str) -> None:
    found = view_of(row(word))
    assert (found.state, found.end, is_known(word)) == (JobState.RUNNING, None, True)


@pytest.mark.parametrize("word", ENDS)
def test_an_end_says_what_becomes_of_an_attempt_that_left_no_record(word: str) -> None:
    found = view_of(row(word, ended_at=5.0))
    assert (found.state, found.ended_at, is_known(word)) == (JobState.ENDED, 5.0, True)
    assert (found.end, found.failure) == (AttemptState(ENDS[word][0]), FailureClass(ENDS[word][1]))


@pytest.mark.parametrize("word", ["UPDATE_DB", "POWER_UP_NODE", "SOMETHING_NEW", "", "?"])
def test_a_word_that_nobody_knows_proves_no_end(word: str) -> None:
    assert view_of(row(word)).state is JobState.RUNNING
    assert not is_known(word)


@pytest.mark.parametrize("word", ["CANCELLED by 1000", "CANCELLED+"])
def test_a_word_with_more_behind_it_is_known(word: str) -> None:
    assert view_of(row(word)).end is AttemptState.CANCELLED


@pytest.mark.parametrize(
    ("fields", "raw"),
    [
        ({}, "FAILED"),
        ({"reason": "None", "exit_code": "0:0"}, "FAILED"),
        ({"reason": "NonZeroExitCode", "exit_code": "71:0"}, "FAILED NonZeroExitCode exit 71:0"),
    ],
)
def test_the_raw_word_keeps_reason_and_exit_code(fields: dict[str, str], raw: str) -> None:
    assert view_of(row("FAILED", **fields)).raw == raw


def test_a_view_says_which_job_and_which_query() -> None:
    found = view_of(row("RUNNING", source="squeue"))
    assert (found.job_id, found.source) == ("34", "squeue")


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu3", "gpu3"),
        ("gpu[3,7-9]", "gpu3"),
        ("rack1-gpu[01-04],rack2-gpu07", "rack1-gpu01"),
        ("rack1-gpu07,rack2-gpu[01-04]", "rack1-gpu07"),
        ("gpu[2-3]-ib.site", "gpu2-ib.site"),
        ("", ""),
        ("None assigned", ""),
    ],
)
def test_the_script_of_a_job_runs_on_the_first_of_its_nodes(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


@pytest.mark.parametrize(
    ("word", "node"),
    [("FAILED", "gpu3"), ("NODE_FAIL", "gpu3"), ("CANCELLED", ""), ("TIMEOUT", "")],
)
def test_a_node_may_be_to_blame_for_a_job_that_nobody_else_has_ended(word: str, node: str) -> None:
    assert view_of(row(word, nodes="gpu3")).node == node

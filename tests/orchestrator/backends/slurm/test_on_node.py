"""What is made of the scheduler's answer about a TERM."""

import subprocess
import time
from pathlib import Path

import pytest

from vtjobs.jobs.config.node import UNEXPLAINED, Ruling, on_node
from vtjobs.jobs.run.states import AttemptState
from vtjobs.orchestrator.backends.slurm.on_node import DEADLINE_S, Inquiry, interpret

from ....support.lab import wait_for
from ....support.scheduler import Commands, job_line

# Of a controller that does not answer, seconds.
SLOW_S = 61


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands(tmp_path / "bin")
    monkeypatch.setenv("PATH", made.path)
    return made


def ask(job: str = "40_3") -> tuple[Ruling, float]:
    """Ask as the agent's loop does; return the ruling and the longest that one look took."""
    inquiry, longest = Inquiry(job, 0), 0.0

    def look() -> Ruling | None:
        nonlocal longest
        began = time.monotonic()
        found = inquiry.look()
        longest = max(longest, time.monotonic() - began)
        return found

    return wait_for(look, SLOW_S / 2), longest


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (job_line("TIMEOUT", reason="TimeLimit"), AttemptState.TIMEOUT),
        (job_line("COMPLETING", reason="TimeLimit"), AttemptState.TIMEOUT),
        (job_line("PREEMPTED"), AttemptState.PREEMPTED),
        (job_line("RUNNING", preempted_at="2026-01-01T00:00:09"), AttemptState.PREEMPTED),
        (job_line("COMPLETING", preempted_at="2026-01-01T00:00:09"), AttemptState.PREEMPTED),
        (job_line("CANCELLED"), AttemptState.CANCELLED),
        (job_line("COMPLETING"), AttemptState.CANCELLED),
    ],
)
def test_walltime_preemption_and_a_cancel_are_told_apart(line: str, state: AttemptState) -> None:
    ruling = interpret(line)
    assert ruling is not None and (ruling.state, ruling.explained) == (state, True)


def test_a_node_that_is_taken_away_is_left_to_the_schedulers_word() -> None:
    assert interpret(job_line("NODE_FAIL", reason="NodeDown")) == UNEXPLAINED


def test_a_job_that_went_back_into_the_queue_was_not_cancelled() -> None:
    assert interpret(job_line("COMPLETING").replace("Restarts=0", "Restarts=1")) is None


def test_a_comment_does_not_pass_for_a_field() -> None:
    ruling = interpret(
        job_line("COMPLETING") + " Comment=x JobState=TIMEOUT Reason=TimeLimit PreemptTime=now"
    )
    assert ruling is not None and ruling.state is AttemptState.CANCELLED


@pytest.mark.parametrize(
    "line", ["", "slurm_load_jobs error: Invalid job id specified", job_line("RUNNING")]
)
def test_what_explains_nothing_is_no_answer(line: str) -> None:
    assert interpret(line) is None


def test_a_controller_that_does_not_answer_holds_nothing_up_and_is_left_in_time(
    commands: Commands,
) -> None:
    commands.answers("scontrol", f"exec sleep {SLOW_S}")
    began = time.monotonic()
    ruling, longest = ask()
    assert ruling == UNEXPLAINED
    # Who waited for the answer would need all of SLOW_S, and one look all of the deadline.
    assert DEADLINE_S <= time.monotonic() - began < SLOW_S
    assert longest < DEADLINE_S
    assert not subprocess.run(["pgrep", "-fx", f"sleep {SLOW_S}"], capture_output=True).stdout


def test_a_controller_that_has_not_noticed_yet_is_asked_again(commands: Commands) -> None:
    late = commands.folder / "late"
    early, final = job_line("RUNNING"), job_line("CANCELLED")
    commands.answers(
        "scontrol", f"if [ -e {late} ]; then echo '{final}'; else echo '{early}'; touch {late}; fi"
    )
    ruling, _ = ask()
    assert ruling.state is AttemptState.CANCELLED
    assert commands.calls("scontrol") == ["-o show job 40_3"] * 2


def test_the_question_survives_the_second_term_to_every_process_of_the_step(
    commands: Commands,
) -> None:
    line = job_line("COMPLETING", reason="TimeLimit")
    commands.answers("scontrol", f"kill -TERM $$; echo '{line}'")
    assert ask()[0].state is AttemptState.TIMEOUT
    assert len(commands.calls("scontrol")) == 1


def test_without_the_command_there_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask()[0] == UNEXPLAINED


def test_an_element_of_an_array_is_asked_about_by_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    assert on_node("slurm").job == ""
    monkeypatch.setenv("SLURM_JOB_ID", "43")
    assert on_node("slurm").job == "43"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "40")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert on_node("slurm").job == "40_0"

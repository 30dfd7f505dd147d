"""What keeps a grid from wasting a cluster: canary, breaker, and runs that can never start."""

import re
from collections.abc import Sequence

import pytest

from vtjobs.db import scheduler_notes
from vtjobs.jobs.run.retry import ALIKE_RUNS
from vtjobs.orchestrator.backends.base import Waiting
from vtjobs.orchestrator.backends.slurm.pending import explain
from vtjobs.orchestrator.loop.guard import guard
from vtjobs.orchestrator.loop.tick import Report, tick
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.requests.submit import submit

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab, SleepingBackend

EPOCH = ("epoch", {"epoch": 0, "step": 8, "metrics": {"loss": 1.0}})


def fail(
    lab: Lab,
    *run_ids: str,
    signature: str = "ValueError: no",
    failure: str = "user_error",
    error: str = "",
    host: str = "h1",
) -> None:
    """Let the newest attempts of these runs fail."""
    for run_id in run_ids:
        number = lab.attempts(run_id)[-1].number
        journal(
            lab,
            run_id,
            number,
            started(attempt=number, host=host),
            ended("failed", failure, signature=signature, error=error),
        )


def queued(lab: Lab, run_ids: Sequence[str]) -> list[str]:
    states = lab.states()
    return [run_id for run_id in run_ids if states[run_id] == "queued"]


# The canary ---------------------------------------------------------------------------------------


@pytest.fixture
def runs(quiet_lab: Lab) -> list[str]:
    """Two heads of three seeds each, with a canary; the first seed of each head goes first."""
    prepared = quiet_lab.prepare(
        tiny_grid(heads="[supervised, relvit]", seeds="3", extra="retries: 1")
    )
    submit(quiet_lab.context, prepared, canary=True)
    quiet_lab.tick()
    return [run[0] for run in prepared.frozen.runs]


def test_one_run_of_each_head_goes_first(quiet_lab: Lab, runs: list[str]) -> None:
    assert len(runs) == 6
    assert queued(quiet_lab, runs) == [runs[0], runs[3]]
    quiet_lab.tick()
    assert len(queued(quiet_lab, runs)) == 2


def test_the_rest_is_released_once_each_has_passed_its_first_epoch(
    quiet_lab: Lab, runs: list[str]
) -> None:
    journal(quiet_lab, runs[0], 1, started(), EPOCH)
    quiet_lab.tick()
    assert queued(quiet_lab, runs) == [runs[3]], "one of two has not"
    journal(quiet_lab, runs[3], 1, started(), EPOCH)
    assert tick(quiet_lab.context).problems == []
    assert queued(quiet_lab, runs) == [runs[1], runs[2], runs[4], runs[5]]


def test_a_canary_that_completed_has_passed(quiet_lab: Lab, runs: list[str]) -> None:
    for run_id in (runs[0], runs[3]):
        journal(quiet_lab, run_id, 1, started(), scored(90.0), ended("completed"))
    quiet_lab.tick()
    assert len(queued(quiet_lab, runs)) == 4


def test_a_canary_that_failed_holds_the_rest_back_and_says_so(
    quiet_lab: Lab, runs: list[str]
) -> None:
    journal(quiet_lab, runs[0], 1, started(), EPOCH)
    fail(quiet_lab, runs[3])
    for _ in range(2):
        (problem,) = tick(quiet_lab.context).problems
        assert "1 of 2 canary runs failed, so the rest is held back" in problem
        assert f"vtjobs failures {runs[3][:8]}" in problem and "vtjobs release tiny-" in problem
    assert queued(quiet_lab, runs) == []


def test_a_release_opens_what_a_failed_canary_closed(quiet_lab: Lab, runs: list[str]) -> None:
    fail(quiet_lab, runs[0], runs[3])
    quiet_lab.tick()
    actions.release(quiet_lab.context, runs)
    assert tick(quiet_lab.context).problems == []
    assert len(queued(quiet_lab, runs)) == 4


def test_a_retry_of_a_failed_canary_opens_it_too(quiet_lab: Lab, runs: list[str]) -> None:
    fail(quiet_lab, runs[0], runs[3])
    quiet_lab.tick()
    actions.retry(quiet_lab.context, [runs[0]], clean=False)
    assert tick(quiet_lab.context).problems == []
    assert set(queued(quiet_lab, runs)) == set(runs) - {runs[3]}


def test_a_grid_whose_canary_has_passed_is_not_held_back_when_it_is_submitted_again(
    quiet_lab: Lab, runs: list[str]
) -> None:
    for run_id in (runs[0], runs[3]):
        journal(quiet_lab, run_id, 1, started(), EPOCH)
    quiet_lab.tick()
    text = tiny_grid(heads="[supervised, relvit]", seeds="3", extra="retries: 1")
    submit(quiet_lab.context, quiet_lab.prepare(text), canary=True)
    quiet_lab.tick()
    assert len(queued(quiet_lab, runs)) == 4


# The breaker --------------------------------------------------------------------------------------


@pytest.fixture
def many(quiet_lab: Lab) -> list[str]:
    """Six runs of which four are queued and two still wait."""
    found = quiet_lab.submit(tiny_grid(seeds="6", extra="retries: 1\nmax_running: 4"))
    quiet_lab.tick()
    return found


def problems(lab: Lab) -> list[str]:
    report: Report = tick(lab.context)
    return report.problems


def test_two_that_fail_alike_stop_nothing(quiet_lab: Lab, many: list[str]) -> None:
    fail(quiet_lab, *many[: ALIKE_RUNS - 1])
    assert problems(quiet_lab) == []
    assert len(queued(quiet_lab, many)) == 4


def test_three_that_fail_alike_stop_the_grid_and_say_so_each_time(
    quiet_lab: Lab, many: list[str]
) -> None:
    fail(quiet_lab, *many[:ALIKE_RUNS])
    for _ in range(2):
        (problem,) = problems(quiet_lab)
        assert (
            "failed with the same error (user_error: ValueError: no); 3 runs are held back"
            in problem
        )
        assert "vtjobs retry tiny-" in problem and "vtjobs release tiny-" in problem
    assert queued(quiet_lab, many) == [many[3]], "nothing new was submitted"


def test_the_stop_names_a_real_error_with_its_numbers(quiet_lab: Lab, many: list[str]) -> None:
    for number, run_id in enumerate(many[:ALIKE_RUNS]):
        fail(quiet_lab, run_id, signature="ValueError: #", error=f"ValueError: {number}7\n")
    (problem,) = problems(quiet_lab)
    assert re.search(r"\(user_error: ValueError: [012]7\); 3 runs are held back", problem)


def test_failures_of_different_kinds_are_not_alike(quiet_lab: Lab, many: list[str]) -> None:
    for number, run_id in enumerate(many[:3]):
        fail(quiet_lab, run_id, signature=f"ValueError: {number}")
    assert problems(quiet_lab) == []


def test_failures_that_trying_again_may_mend_trip_nothing(quiet_lab: Lab, many: list[str]) -> None:
    fail(quiet_lab, *many[:3], failure="storage")
    assert problems(quiet_lab) == []


@pytest.fixture
def patient(quiet_lab: Lab) -> list[str]:
    """Six runs with several tries each, of which four are queued and two still wait."""
    found = quiet_lab.submit(tiny_grid(seeds="6", extra="retries: 3\nmax_running: 4"))
    quiet_lab.tick()
    return found


def test_missing_data_stops_the_grid_before_any_run_is_tried_again(
    quiet_lab: Lab, patient: list[str]
) -> None:
    fail(quiet_lab, *patient[:3], failure="data_missing")
    (problem,) = problems(quiet_lab)
    assert "(data_missing: ValueError: no); 6 runs are held back" in problem
    assert queued(quiet_lab, patient) == [patient[3]], "nothing new was submitted"


def test_data_missing_on_one_of_several_nodes_stops_nothing(
    quiet_lab: Lab, patient: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SleepingBackend, "one_machine", False)
    fail(quiet_lab, *patient[:3], failure="data_missing")
    assert problems(quiet_lab) == []


def test_data_missing_on_two_nodes_stops_the_grid(
    quiet_lab: Lab, patient: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SleepingBackend, "one_machine", False)
    fail(quiet_lab, *patient[:2], failure="data_missing")
    fail(quiet_lab, patient[2], failure="data_missing", host="h2")
    (problem,) = problems(quiet_lab)
    assert "stopped after 3 runs failed with the same error" in problem


def test_runs_start_again_at_once_when_missing_data_is_back(
    quiet_lab: Lab, patient: list[str]
) -> None:
    fail(quiet_lab, *patient[:3], failure="data_missing")
    assert problems(quiet_lab)
    actions.retry(quiet_lab.context, patient, clean=False)
    assert problems(quiet_lab) == []
    assert set(patient[:3]) <= set(queued(quiet_lab, patient))


def test_a_retry_of_runs_that_gave_up_on_missing_data_starts_them(quiet_lab: Lab) -> None:
    found = quiet_lab.submit(tiny_grid(seeds="3", extra="retries: 1"))
    quiet_lab.tick()
    fail(quiet_lab, *found, failure="data_missing")
    assert problems(quiet_lab) == [], "nothing is left to start"
    actions.retry(quiet_lab.context, found, clean=False)
    assert problems(quiet_lab) == []
    assert queued(quiet_lab, found) == found


def test_runs_that_were_retried_do_not_count_with_one_that_fails_later(
    quiet_lab: Lab, patient: list[str]
) -> None:
    fail(quiet_lab, *patient[:2], failure="data_missing")
    assert problems(quiet_lab) == []
    actions.retry(quiet_lab.context, patient[:2], clean=False)
    fail(quiet_lab, patient[2], failure="data_missing")
    assert problems(quiet_lab) == []


def test_another_grid_goes_on(quiet_lab: Lab, many: list[str]) -> None:
    fail(quiet_lab, *many[:3])
    other = quiet_lab.submit(tiny_grid(name="other", seeds="[7, 8]"))
    quiet_lab.tick()
    assert queued(quiet_lab, other) == other


@pytest.mark.parametrize("how", ["release", "retry"])
def test_the_breaker_is_reset_by_the_user_and_not_tripped_again_by_the_same_failures(
    quiet_lab: Lab, many: list[str], how: str
) -> None:
    fail(quiet_lab, *many[:3])
    assert problems(quiet_lab)
    if how == "release":
        actions.release(quiet_lab.context, many)
    else:
        actions.retry(quiet_lab.context, many[:1], clean=False)
    assert [problems(quiet_lab) for _ in range(3)] == [[], [], []]
    assert many[4] in queued(quiet_lab, many)


def test_new_failures_after_a_reset_trip_it_again(quiet_lab: Lab, many: list[str]) -> None:
    fail(quiet_lab, *many[:3])
    quiet_lab.tick()
    actions.retry(quiet_lab.context, many[:3], clean=False)
    quiet_lab.tick()
    assert set(many[:3]) <= set(queued(quiet_lab, many))
    fail(quiet_lab, *many[:2])
    assert problems(quiet_lab) == []
    fail(quiet_lab, many[2])
    (problem,) = problems(quiet_lab)
    assert "stopped after 3 runs failed with the same error" in problem


def test_a_grid_with_nothing_left_to_start_needs_no_stop(quiet_lab: Lab) -> None:
    found = quiet_lab.submit(tiny_grid(seeds="3", extra="retries: 1"))
    quiet_lab.tick()
    fail(quiet_lab, *found)
    assert problems(quiet_lab) == []


# What can never start -----------------------------------------------------------------------------


class Speaking(SleepingBackend):
    """A queue that explains its words as SLURM does."""

    def explain(self, word: str, *, job: str = "", token: str = "") -> Waiting | None:
        return explain(word, job=job)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        (
            "PENDING PartitionTimeLimit",
            "2 queued run(s) can never start: it asks for more time than",
        ),
        ("PENDING JobHeldUser", "2 queued run(s) will not start by itself"),
        ("PENDING Priority", ""),
        ("RUNNING", ""),
    ],
)
def test_queued_runs_that_will_not_start_are_named_with_the_reason(
    quiet_lab: Lab, word: str, says: str
) -> None:
    found = quiet_lab.submit(tiny_grid(seeds="3"))
    quiet_lab.tick()
    quiet_lab.context._backends["local"] = Speaking(quiet_lab.context.workspace)
    scheduler_notes.set_words(quiet_lab.context.ledger, [(run_id, 1, word) for run_id in found[:2]])
    told = guard(quiet_lab.context)
    assert len(told) == bool(says)
    if says:
        assert says in told[0] and told[0].endswith(f"See: vtjobs why {min(found[:2])[:8]}")

"""Failed runs grouped by cause."""

from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.views import failures as view_failures

from ...support.lab import Lab

ALL = Selection()


def test_failures_are_grouped_by_cause(quiet_lab: Lab, runs: list[str]) -> None:
    (group,) = view_failures.failures(quiet_lab.context, ALL)
    assert (group.failure, group.signature) == ("user_error", "ValueError: no at x.py:f")
    assert (group.run_ids, group.hosts, group.common["seed"]) == ([runs[1]], ["h2"], 1)
    assert (group.log, group.next) == (None, f"vtjobs show {runs[1][:8]}")
    assert group.message == "ValueError: no 17"
    assert group.place == "x.py:3"
    assert group.remedy == f"Fix x.py:3, then run: vtjobs retry {runs[1][:8]}"


def test_where_there_is_a_log_a_group_leads_to_it(quiet_lab: Lab, runs: list[str]) -> None:
    folder = quiet_lab.run(runs[1]).logs(1)
    folder.mkdir()
    (folder / "rank-0.log").write_text("hello")
    (group,) = view_failures.failures(quiet_lab.context, ALL)
    assert group.log == str(folder / "rank-0.log")
    assert group.next == f"vtjobs logs {runs[1][:8]}"


def test_logs_are_those_of_the_last_attempt_that_left_any(quiet_lab: Lab, runs: list[str]) -> None:
    assert view_failures.logs_of(quiet_lab.context, runs[0]) == []
    folder = quiet_lab.run(runs[0]).logs(1)
    folder.mkdir()
    (folder / "rank-0.log").write_text("hello")
    quiet_lab.run(runs[0]).attempt(2).mkdir()
    assert [path.name for path in view_failures.logs_of(quiet_lab.context, runs[0])] == [
        "rank-0.log"
    ]

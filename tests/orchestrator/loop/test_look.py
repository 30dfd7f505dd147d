"""Looking takes in what happened, and starts, cancels and submits nothing."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from vtjobs.db.scheduler_notes import note_away
from vtjobs.jobs.errors import SchedulerSlow
from vtjobs.jobs.run.states import RunState
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.base import JobView, Key, Place
from vtjobs.orchestrator.loop.asking import ACT_S
from vtjobs.orchestrator.loop.tick import look, tick

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab, SleepingBackend
from ...support.strangers import as_stranger, needs_root


def test_a_due_run_stays_where_it_is(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    report = look(quiet_lab.context)
    assert report.launched == 0
    assert quiet_lab.state(run_id) == RunState.PENDING
    assert quiet_lab.attempts(run_id) == []


def test_what_a_journal_says_is_taken_in(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), scored(90.0), ended("completed"))
    look(quiet_lab.context)
    assert quiet_lab.state(run_id) == RunState.COMPLETED


def test_an_attempt_that_is_gone_is_ended_and_its_run_not_started_again(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started())
    shutil.rmtree(quiet_lab.context.workspace.local_queue() / "queue")
    look(quiet_lab.context)
    assert [attempt.state for attempt in quiet_lab.attempts(run_id)] == ["lost"]
    assert quiet_lab.state(run_id) == RunState.PENDING


def test_a_lost_submission_is_not_repeated(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.allocate([run_id], backend="slurm")
    quiet_lab.clock.ahead_s = 600
    assert look(quiet_lab.context).resubmitted == 0


# Audit hooks stay for good, so this one listens only while a test counts.
_counted: list[str] = []
_counts = False


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _counts and event in ("open", "os.listdir", "os.scandir"):
        _counted.append(str(arguments[0]))


sys.addaudithook(_hear)


def test_each_live_run_costs_a_look_one_open_file_and_no_listing(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="9"))
    quiet_lab.tick()
    for run_id in runs:
        journal(quiet_lab, run_id, 1, started())
    look(quiet_lab.context)
    monkeypatch.setattr(sys.modules[__name__], "_counts", True)
    look(quiet_lab.context)
    monkeypatch.undo()
    # A millisecond each on a shared file system, and ten thousand may be live.
    in_runs = [path for path in _counted if any(run_id in path for run_id in runs)]
    assert sorted(in_runs) == sorted(str(quiet_lab.run(run_id).journal(1, 0)) for run_id in runs)


class CountingBackend(SleepingBackend):
    """The queue of this machine, asked as seldom as a cluster's."""

    poll_s = 30.0
    asked = 0

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        type(self).asked += 1
        return super().observe(places)


def test_the_scheduler_is_asked_once_in_thirty_seconds_however_many_look(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    for _ in range(6):
        context = quiet_lab.open()
        context._backends["local"] = CountingBackend(context.workspace)
        look(context)
    assert CountingBackend.asked == 1
    quiet_lab.clock.ahead_s = 31
    look(context)
    assert CountingBackend.asked == 2


class LateBackend(SleepingBackend):
    """A scheduler that answers after so many seconds to whoever waits for that long."""

    poll_s = 30.0
    look_s = 2.0
    takes_s = 60.0

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.waited_s: list[float] = []

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        self.waited_s.append(self.look_s)
        if self.takes_s > self.look_s:
            raise SchedulerSlow(f"no answer within {self.look_s:g} s")
        return super().observe(places)


@pytest.fixture
def late(quiet_lab: Lab) -> LateBackend:
    """The scheduler of a run that is queued; it answered when that was submitted."""
    backend = LateBackend(quiet_lab.context.workspace)
    quiet_lab.context._backends["local"] = backend
    quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    return backend


def test_a_scheduler_that_is_late_is_slow_and_what_it_said_is_shown_with_its_age(
    quiet_lab: Lab, late: LateBackend
) -> None:
    quiet_lab.clock.ahead_s = 31
    report = look(quiet_lab.context)
    assert report.unreachable == {}
    note = report.slow["local"]
    assert note.reason == "no answer within 2 s"
    assert note.answered is not None and 30 < note.asked - note.answered < 90
    assert set(quiet_lab.states().values()) == {"queued"}


def test_a_look_in_between_says_what_the_last_one_found(quiet_lab: Lab, late: LateBackend) -> None:
    quiet_lab.clock.ahead_s = 31
    look(quiet_lab.context)
    assert look(quiet_lab.context).slow.keys() == {"local"}
    assert len(late.waited_s) == 1


def test_a_scheduler_that_is_late_for_five_minutes_is_waited_for_and_then_unreachable(
    quiet_lab: Lab, late: LateBackend
) -> None:
    for ahead_s in (31, 200, 340, 380):
        quiet_lab.clock.ahead_s = ahead_s
        report = look(quiet_lab.context)
        assert ("local" in report.unreachable) == (ahead_s > 331)
    assert late.waited_s == [2.0, 2.0, ACT_S, 2.0]


def test_a_scheduler_that_always_answers_late_is_never_unreachable(
    quiet_lab: Lab, late: LateBackend
) -> None:
    late.takes_s = 4.0
    for ahead_s in range(31, 1000, 50):
        quiet_lab.clock.ahead_s = ahead_s
        assert look(quiet_lab.context).unreachable == {}
    assert late.waited_s.count(ACT_S) == 2


def test_a_pass_waits_longer_than_a_look_and_fails_where_it_waited_in_vain(
    quiet_lab: Lab, late: LateBackend
) -> None:
    quiet_lab.clock.ahead_s = 31
    assert tick(quiet_lab.context).unreachable.keys() == {"local"}
    assert look(quiet_lab.context).unreachable == {}, "it may still be but slow"
    late.takes_s = 4.0
    quiet_lab.clock.ahead_s = 62
    report = tick(quiet_lab.context)
    assert (report.unreachable, report.slow) == ({}, {})
    assert late.waited_s == [ACT_S, ACT_S]


def test_looks_in_vain_take_no_turn_from_a_pass(quiet_lab: Lab, late: LateBackend) -> None:
    late.takes_s = 4.0
    quiet_lab.clock.ahead_s = 31
    assert look(quiet_lab.context).slow.keys() == {"local"}
    report = tick(quiet_lab.context)
    assert (report.unreachable, report.slow) == ({}, {})
    assert late.waited_s == [2.0, ACT_S]


def test_passes_wait_for_a_silent_scheduler_in_turns_and_those_in_between_do_not_fail(
    quiet_lab: Lab, late: LateBackend
) -> None:
    quiet_lab.clock.ahead_s = 31
    look(quiet_lab.context)
    assert tick(quiet_lab.context).unreachable.keys() == {"local"}
    report = tick(quiet_lab.context)
    assert (report.unreachable, report.slow.keys()) == ({}, {"local"})
    assert late.waited_s == [2.0, ACT_S]


def test_what_a_look_found_late_is_submitted_to_at_once(quiet_lab: Lab, late: LateBackend) -> None:
    quiet_lab.clock.ahead_s = 31
    for seed in (7, 8):
        look(quiet_lab.context)
        quiet_lab.submit(tiny_grid(name=f"more-{seed}", seeds=f"[{seed}]"))
        report = tick(quiet_lab.context)
        assert (report.launched, report.unreachable, report.slow) == (1, {}, {})
        note_away(quiet_lab.context.ledger, "local", SchedulerSlow("no answer within 2 s"))


def test_a_tripped_breaker_is_said_and_not_set(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="5", extra="retries: 1"))
    for run_id in runs[:3]:
        quiet_lab.allocate([run_id])
        broken = ended("failed", "setup_error", signature="ImportError: x", exit_code=71)
        journal(quiet_lab, run_id, 1, started(), broken)
    (problem,) = look(quiet_lab.context).problems
    assert "stopped after 3 runs failed" in problem
    (grid,) = quiet_lab.context.workspace.grids.iterdir()
    assert not (grid / "breaker.json").exists()


def test_it_says_that_nobody_serves_the_queue(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    shutil.rmtree(quiet_lab.context.workspace.local_queue() / "runner.lock", ignore_errors=True)
    (problem,) = look(quiet_lab.context).problems
    assert "vtjobs supervise --once" in problem


@needs_root
def test_another_user_sees_the_runs_and_writes_nothing(open_folder: Path) -> None:
    lab = Lab(open_folder, asleep=True)
    runs = lab.submit(tiny_grid(seeds="2"))
    lab.tick()
    journal(lab, runs[0], 1, started(), scored(90.0), ended("completed"))
    lab.context.ledger.engine.dispose()
    _open_for_all(open_folder)
    before = _contents(lab.root)
    shown = as_stranger(open_folder, "status", "--json", "--workspace", str(lab.root))
    assert shown.returncode == 0, shown.stderr
    assert '"queued": 2' in shown.stdout
    refused = as_stranger(open_folder, "cancel", "all", "--workspace", str(lab.root))
    assert refused.returncode == 2
    assert "may not write" in refused.stderr
    assert _contents(lab.root) == before


def _open_for_all(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))


def _contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}

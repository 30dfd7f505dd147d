"""A command that waits leaves the machine to others."""

import time
from types import SimpleNamespace

import pytest

from vtjobs.jobs.run.selector import Selection
from vtjobs.jobs.workspace.markers import trip
from vtjobs.orchestrator.loop import tick as module
from vtjobs.orchestrator.loop import wait as waiting
from vtjobs.orchestrator.loop.tick import MOST_REST_S, Effort

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab


class Rested(Exception):
    """Says for how many seconds."""


def _rest(monkeypatch: pytest.MonkeyPatch, *, wall_s: float, cpu_s: float) -> float:
    """Return the rest after a pass that took so long."""
    now = {"wall": 100.0, "cpu": 7.0}
    clock = SimpleNamespace(monotonic=lambda: now["wall"], process_time=lambda: now["cpu"])
    monkeypatch.setattr(module, "time", clock)
    effort = Effort()
    now["wall"] += wall_s
    now["cpu"] += cpu_s
    return effort.rest_s()


def test_after_a_pass_that_computes_a_fifth_of_the_time_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rest = _rest(monkeypatch, wall_s=2.0, cpu_s=2.0)
    assert 2.0 / (2.0 + rest) == pytest.approx(0.2)


def test_after_a_pass_that_waits_for_a_disk_or_a_server_these_have_a_rest_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _rest(monkeypatch, wall_s=10.0, cpu_s=0.1) == 10.0


def test_no_rest_is_longer_than_a_user_would_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _rest(monkeypatch, wall_s=180.0, cpu_s=180.0) == MOST_REST_S


def test_a_wait_rests_as_its_pass_says(quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def rest(seconds: float) -> None:
        raise Rested(seconds)

    quiet_lab.submit(tiny_grid(seeds="1"))
    monkeypatch.setattr(Effort, "rest_s", lambda self: 17.0)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(sleep=rest, monotonic=time.monotonic))
    with pytest.raises(Rested) as rested:
        waiting.wait(quiet_lab.context, Selection(everything=True), lambda rows, report: None)
    assert rested.value.args == (17.0,)


def test_a_wait_ends_where_the_breaker_of_a_grid_keeps_its_other_runs_from_starting(
    quiet_lab: Lab,
) -> None:
    failed, *others = quiet_lab.submit(tiny_grid(seeds="3", extra="retries: 1\nmax_running: 1"))
    quiet_lab.tick()
    journal(quiet_lab, failed, 1, started(), ended("failed", "user_error"))
    (grid,) = quiet_lab.context.workspace.grids.iterdir()
    trip(
        quiet_lab.context.workspace,
        grid.name,
        failure="user_error",
        signature="no",
        message="no",
        runs=[failed],
    )
    rows = waiting.wait(quiet_lab.context, Selection(everything=True), lambda rows, report: None)
    assert {row.run_id: row.state for row in rows} == {
        failed: "failed", **dict.fromkeys(others, "pending"),
    }  # fmt: skip

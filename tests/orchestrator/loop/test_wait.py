"""A command that waits leaves the machine to others."""

from types import SimpleNamespace

import pytest

from vtjobs.orchestrator.loop import tick as module
from vtjobs.orchestrator.loop.tick import MOST_REST_S, REST, Effort


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
    assert rest == 2.0 * REST
    assert 2.0 / (2.0 + rest) == pytest.approx(0.2)


def test_after_a_pass_that_waits_for_a_disk_or_a_server_these_have_a_rest_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _rest(monkeypatch, wall_s=10.0, cpu_s=0.1) == 10.0


def test_no_rest_is_longer_than_a_user_would_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _rest(monkeypatch, wall_s=180.0, cpu_s=180.0) == MOST_REST_S

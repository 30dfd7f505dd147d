"""A command that waits leaves the machine to others."""

import time

import pytest

from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.loop import wait as module
from vtjobs.orchestrator.loop.context import Context
from vtjobs.orchestrator.loop.tick import REST, Report, tick

from ...support.grids import tiny_grid
from ...support.lab import Lab

BUSY_S = 0.4


class Rested(Exception):
    """Carries for how long."""


def _rests_for(lab: Lab, monkeypatch: pytest.MonkeyPatch, *, busy_s: float) -> float:
    """Return how many seconds a wait sleeps after a pass of so many seconds of CPU time."""

    def busy(context: Context) -> Report:
        report = tick(context)
        until = time.process_time() + busy_s
        while time.process_time() < until:
            pass
        return report

    def rest(seconds: float) -> None:
        raise Rested(seconds)

    lab.submit(tiny_grid(seeds="1"))
    monkeypatch.setattr(module, "tick", busy)
    monkeypatch.setattr(module.time, "sleep", rest)
    with pytest.raises(Rested) as rested:
        module.wait(lab.context, Selection(everything=True), lambda rows, report: None)
    return float(rested.value.args[0])


def test_a_wait_rests_longer_than_its_passes_compute(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REST * BUSY_S <= _rests_for(quiet_lab, monkeypatch, busy_s=BUSY_S) < 10


def test_a_wait_looks_every_second_where_a_pass_takes_nothing(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 1 <= _rests_for(quiet_lab, monkeypatch, busy_s=0) < 2

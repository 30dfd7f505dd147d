"""A run in the foreground: what may not start is refused with the way out."""

import pytest

from vtjobs.jobs.errors import VtjobsError
from vtjobs.orchestrator.requests.foreground import run_here
from vtjobs.orchestrator.requests.submit import submit

from ...support.grids import tiny_grid
from ...support.lab import Lab


def test_a_held_run_is_refused_and_keeps_its_tries(quiet_lab: Lab) -> None:
    prepared = quiet_lab.prepare(tiny_grid())
    submit(quiet_lab.context, prepared, hold=True)
    run_id = prepared.frozen.runs[0][0]
    with pytest.raises(VtjobsError, match=f"may not start: held. .*vtjobs release {run_id[:8]}"):
        run_here(quiet_lab.context, run_id)
    assert not quiet_lab.context.workspace.run(run_id).attempts()


def test_only_the_run_that_was_asked_for_is_trained(quiet_lab: Lab) -> None:
    first, second = quiet_lab.submit(tiny_grid(seeds="2"))
    assert run_here(quiet_lab.context, first) == "completed"
    assert quiet_lab.state(second) == "pending"
    assert not quiet_lab.run(second).path.exists()

"""When the runs of the ledger will have ended."""

from vtjobs.jobs.run.eta import Eta
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.jobs.workspace.markers import trip
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.views import runs as view_runs
from vtjobs.orchestrator.views.eta import etas
from vtjobs.orchestrator.views.status import status

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab
from ...support.views import ALL


def of_run(lab: Lab, run_id: str) -> Eta | None:
    (found,) = [run for run in view_runs.runs(lab.context, ALL) if run.run_id == run_id]
    return found.eta


def test_status_and_runs_say_when_what_is_left_will_have_ended(
    quiet_lab: Lab, runs: list[str]
) -> None:
    found = status(quiet_lab.context, ALL)
    # One trains, at a speed that nothing is known of yet; the completed one is of the same cell.
    assert found.eta is not None and found.eta == found.grids[0].eta
    assert (found.eta.basis, found.eta.slots, found.eta.unknown) == ("cell", 1, 0)
    assert of_run(quiet_lab, runs[2]) is not None
    assert [of_run(quiet_lab, run_id) for run_id in (runs[0], runs[3])] == [None, None]


def test_runs_on_hold_are_not_waited_for_and_a_settled_grid_has_no_estimate(
    quiet_lab: Lab,
) -> None:
    found = quiet_lab.submit(tiny_grid(seeds="2"))
    assert etas(quiet_lab.context, ALL).all is not None
    actions.hold(quiet_lab.context, found)
    assert etas(quiet_lab.context, ALL).grids == {}
    assert status(quiet_lab.context, ALL).eta is None


def test_a_grid_that_its_breaker_stopped_has_an_estimate_of_what_trains_alone(
    quiet_lab: Lab, runs: list[str]
) -> None:
    workspace = quiet_lab.context.workspace
    quiet_lab.submit(tiny_grid(name="waits", seeds="2"))
    before = etas(quiet_lab.context, ALL).grids
    assert len(before) == 2
    for grid_id in before:
        trip(workspace, grid_id, failure="user_error", signature="", message="no", runs=())
    (training,) = [run for run in view_runs.runs(quiet_lab.context, ALL) if run.run_id == runs[2]]
    assert list(etas(quiet_lab.context, ALL).grids) == [training.grid_id]


def test_a_retry_that_waits_for_its_back_off_alone_has_an_estimate(quiet_lab: Lab) -> None:
    first, second = quiet_lab.submit(tiny_grid(seeds="2", extra="retries: 3"))
    quiet_lab.tick()
    journal(quiet_lab, first, 1, started(), ended("completed"))
    journal(quiet_lab, second, 1, started(), ended("failed", "storage"))
    quiet_lab.tick(start=False)
    found = etas(quiet_lab.context, ALL).all
    assert found is not None and found.low_s is not None and found.low_s > 60


def test_an_estimate_is_of_the_runs_that_are_selected(quiet_lab: Lab, runs: list[str]) -> None:
    assert etas(quiet_lab.context, parse_selection([runs[0]])).all is None
    # In this order: what is left grows less between the two.
    both = etas(quiet_lab.context, ALL).all
    running = etas(quiet_lab.context, parse_selection([runs[2]])).all
    assert running is not None and both is not None and running.high_s is not None
    assert both.high_s is not None and running.high_s <= both.high_s

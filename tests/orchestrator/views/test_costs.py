"""What cells cost, beside what they reach."""

import pytest

from vtjobs.db import queries
from vtjobs.db.engine import reading
from vtjobs.jobs.run.selector import Selection
from vtjobs.jobs.run.spec import CellSpec
from vtjobs.jobs.values import changed
from vtjobs.orchestrator.views.costs import CellCost, costs, counts_of

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab

pytestmark = pytest.mark.training


@pytest.fixture
def trained(quiet_lab: Lab) -> Lab:
    """A baseline and a head of two seeds each; the head is slower."""
    runs = quiet_lab.submit(tiny_grid(heads="[supervised, relvit]"))
    quiet_lab.tick()
    for number, run_id in enumerate(runs):
        speed = 400.0 if number < 2 else 320.0
        usage = {"images_per_s": speed, "peak_memory_bytes": 2**30}
        usage |= {"step_s": 64 / speed, "step_std_s": 0.01}
        end = ended("completed", usage=usage, epoch=1, step=8)
        journal(quiet_lab, run_id, 1, started(), scored(60.0 + number), end)
    quiet_lab.tick(start=False)
    return quiet_lab


def by_head(lab: Lab) -> dict[str, CellCost]:
    return {cell.head: cell for cell in costs(lab.context, Selection())}


@pytest.mark.paper("RV-12")
def test_a_head_has_its_own_parameters_beside_those_of_the_backbone(trained: Lab) -> None:
    found = by_head(trained)
    plain, relvit = found["supervised"], found["relvit"]
    assert plain.head_parameters == 0 and (relvit.head_parameters or 0) > 0
    assert plain.parameters == relvit.parameters
    assert plain.multiply_adds == relvit.multiply_adds
    assert plain.error is None and relvit.error is None


@pytest.mark.paper("DR-61", "DR-78", "VA-19")
def test_time_is_held_against_the_baseline_and_stands_beside_the_score(trained: Lab) -> None:
    found = by_head(trained)
    assert (found["supervised"].time_ratio, found["relvit"].time_ratio) == (1.0, 1.25)
    assert (found["supervised"].score, found["relvit"].score) == (60.5, 62.5)
    assert (found["relvit"].step_s, found["relvit"].step_std_s) == (0.2, 0.01)
    assert found["relvit"].peak_memory_bytes == 2**30
    assert found["relvit"].runs == 2


@pytest.mark.paper("CA-13")
def test_a_step_is_timed_by_the_newest_attempt_that_did_enough_of_them(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    long = {"images_per_s": 100.0, "step_s": 0.5, "step_std_s": 0.1}
    journal(quiet_lab, run_id, 1, started(), ended("preempted", usage=long, epoch=1, step=8))
    quiet_lab.tick()
    short = {"images_per_s": 90.0, "step_s": None, "step_std_s": None}
    end = ended("completed", usage=short, epoch=2, step=16)
    journal(quiet_lab, run_id, 2, started(), scored(60.0), end)
    quiet_lab.tick(start=False)
    (cell,) = costs(quiet_lab.context, Selection())
    assert (cell.step_s, cell.step_std_s, cell.images_per_s) == (0.5, 0.1, 90.0)


def test_a_cell_that_has_not_started_has_what_can_be_counted(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    (cell,) = costs(quiet_lab.context, Selection())
    assert (cell.runs, cell.planned) == (0, 1)
    assert (cell.score, cell.images_per_s, cell.gpu_hours) == (None, None, None)
    assert (cell.parameters or 0) > 0 and (cell.multiply_adds or 0) > 0


def test_a_model_that_cannot_be_made_is_an_error_of_its_cell_alone(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    with reading(quiet_lab.context.ledger.engine) as connection:
        (row,) = queries.list_runs(connection, Selection())
        cell = queries.cell_rows(connection, {row.cell_id}, Selection())[row.cell_id]
    sound = CellSpec.stored(cell.spec).settings
    broken = changed(sound, backbone=changed(sound.backbone, model="no_such_model"))
    found = counts_of({"sound": sound, "broken": broken})
    assert found["sound"].error is None
    assert "no_such_model" in (found["broken"].error or "")

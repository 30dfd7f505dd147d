"""What runs use of what they asked for."""

from typing import Any

import pytest

from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.views.efficiency import Efficiency, advice, efficiency

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab

PLAIN: dict[str, Any] = {
    "data_wait": 0.02, "gpu_utilisation": 0.9, "allocation_s": 3600.0, "walltime_s": 4000,
}  # fmt: skip


def used(**figures: float) -> dict[str, Any]:
    return {"usage": figures, "epoch": 1, "step": 8}


def of_all(lab: Lab) -> list[Efficiency]:
    return efficiency(lab.context, Selection())


def test_a_cell_has_the_median_of_its_runs_and_the_most_memory_of_any(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="3"))
    quiet_lab.tick()
    for run_id, speed in zip(runs, (100.0, 300.0, 200.0), strict=True):
        figures = used(images_per_s=speed, data_wait=speed / 1000, rss_bytes=int(speed))
        journal(quiet_lab, run_id, 1, started(), ended("completed", **figures))
    quiet_lab.tick()
    (cell,) = of_all(quiet_lab)
    assert (cell.runs, cell.images_per_s, cell.data_wait) == (3, 200.0, 0.2)
    assert cell.rss_bytes == 300
    assert cell.gpu_utilisation is None and cell.gpu_used_bytes is None


def test_cells_that_have_not_started_are_left_out(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="2"))
    assert of_all(quiet_lab) == []


def test_an_allocation_lasts_from_its_first_start_to_its_last_end(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    quiet_lab.tick()
    at = quiet_lab.context.clock()
    for run_id in runs:
        journal(quiet_lab, run_id, 1, started(), ended("completed"), at=at)
    quiet_lab.tick()
    (cell,) = of_all(quiet_lab)
    assert cell.allocation_s == pytest.approx(0.0, abs=1.0)
    assert cell.run_s == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, None),
        ({"data_wait": 0.71}, "71 % of training is spent waiting for data"),
        ({"gpu_utilisation": 0.05}, "the GPU is busy 5 % of the time"),
        ({"walltime_s": 86400}, "1d00h were asked for and 1h00m used"),
        ({"data_wait": None, "gpu_utilisation": None, "walltime_s": None}, None),
        # Of a minute nothing can be said.
        ({"allocation_s": 60.0, "data_wait": 0.9}, None),
    ],
)
def test_advice_names_what_was_measured(facts: dict[str, Any], said: str | None) -> None:
    found = advice({**PLAIN, **facts}, are_over=True)
    if said is None:
        assert found == []
    else:
        assert len(found) == 1 and found[0].startswith(said)


def test_nothing_is_said_of_the_time_of_runs_that_go_on() -> None:
    assert advice({**PLAIN, "walltime_s": 86400}, are_over=False) == []

"""How many settings of one backbone, dataset and head were tried."""

import pytest

from vtjobs.analysis.findings.cells import report
from vtjobs.jobs.run.selector import Selection

from ..support.grids import tiny_grid
from ..support.lab import Lab


def tried(lab: Lab, name: str) -> dict[str, int]:
    """Return head -> settings tried, as the report of one grid has them."""
    return {cell.head: cell.tried for cell in report(lab.context.ledger, Selection(names=(name,)))}


def test_two_entries_of_one_head_are_two_settings_of_it(quiet_lab: Lab) -> None:
    heads = "[relvit: {weight: 0.1}, relvit: {weight: 0.5}]"
    quiet_lab.submit(tiny_grid(name="weights", heads=heads, seeds="1"))
    quiet_lab.tick()
    assert tried(quiet_lab, "weights") == dict.fromkeys(
        ("relvit(weight=0.1)", "relvit(weight=0.5)"), 2
    )


@pytest.mark.paper("DE-21", "VA-10")
def test_settings_of_all_grids_count_once_a_run_of_theirs_has_begun(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(name="first", heads="[supervised, relvit]", seeds="2"))
    assert tried(quiet_lab, "first") == {"supervised": 0, "relvit": 0}
    quiet_lab.tick()
    assert tried(quiet_lab, "first") == {"supervised": 1, "relvit": 1}

    sweep = tiny_grid(name="sweep", heads="[relvit]", seeds="1")
    quiet_lab.submit(sweep + "axes: {train.lr: [0.1, 0.01]}\n")
    quiet_lab.tick()
    assert tried(quiet_lab, "first") == {"supervised": 1, "relvit": 3}
    assert tried(quiet_lab, "sweep") == {"relvit": 3}

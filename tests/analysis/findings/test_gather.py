"""The document of a report's page."""

import pytest

from vtjobs.analysis.findings.gather import gather
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.jobs.run.selector import parse_selection

from ...support.grids import tiny_grid
from ...support.lab import Lab

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("words", "grids"),
    [(["boom"], ["boom"]), (["grid=edit"], ["edit"]), (["all"], ["boom", "edit"])],
)
def test_a_report_is_of_the_grid_that_was_asked_for_also_if_another_has_its_runs(
    quiet_lab: Lab, words: list[str], grids: list[str]
) -> None:
    quiet_lab.submit(tiny_grid(name="boom", seeds="3"))
    quiet_lab.submit(tiny_grid(name="edit", seeds="2"))
    context = quiet_lab.context
    found = gather(context.ledger, context.workspace, parse_selection(words), ComparisonPlan())
    assert [grid.name for grid in found.grids] == grids

"""A report's lines as text."""

import pytest

from vtjobs.analysis.findings.best_marks import marks
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output.render import of_cells
from vtjobs.jobs.values import changed

from ...support.cells import cell


@pytest.mark.paper("VA-15")
def test_a_single_run_is_told_with_its_seed_and_several_with_their_number() -> None:
    cells = [cell("supervised", {0: 80.0}), cell("drloc", [81.0, 82.0], baseline="supervised")]
    its = marks(cells, ComparisonPlan())
    table = of_cells([changed(one, marks=own) for one, own in zip(cells, its, strict=True)])
    column = table.heading.index("n")
    assert [row[column] for row in table.body] == ["n=1 (seed 0)", "n=2"]

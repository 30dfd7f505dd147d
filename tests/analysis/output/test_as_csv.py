"""Tables as CSV: every part of a study has its line."""

import csv
import io
from typing import Any

import numpy
import pytest

from vtjobs.analysis.findings.per_image import CellSplit, split
from vtjobs.analysis.findings.study import AnyStudy, ArmsStudy, CrossedStudy
from vtjobs.analysis.output import as_csv
from vtjobs.analysis.stats.components import arms, components
from vtjobs.jobs.run.design import Design, rows
from vtjobs.jobs.values import asdict

from ...support.cells import cell

NAMES = ["init", "order"]


def _study(design: Design) -> AnyStudy:
    planned = rows(design, {name: range(3) for name in NAMES}, repeat=2)
    runs = [(streams, 80.0 + number % 4) for number, streams in enumerate(planned)]
    facts: dict[str, Any] = {
        "grid_id": "g-1",
        "metric": "top1",
        "vary": {name: 3 for name in NAMES},
        "ride": [],
        "n": len(runs),
        "used": len(runs),
        "left_out": {},
        "planned": len(runs),
        "missing": [],
        "why_not": "",
        "wiring": [],
    }
    if design is Design.ONE_AT_A_TIME:
        return ArmsStudy(**facts, parts=arms(NAMES, runs))
    return CrossedStudy(**facts, parts=components(design, NAMES, runs))


@pytest.mark.parametrize(
    ("design", "parts"),
    [
        (Design.CROSSED, ["init", "order", "init x order", "hardware"]),
        (Design.ONE_AT_A_TIME, ["init", "order", "all", "repeat"]),
    ],
)
def test_every_part_of_a_study_is_a_line_with_its_interval(
    design: Design, parts: list[str]
) -> None:
    bits = {seed: numpy.arange(50) % (8 + seed) > 0 for seed in range(3)}
    split_cell = CellSplit(
        schema_version=1,
        cell_id="c",
        backbone="vit",
        dataset="digits",
        head="drloc",
        recipe="plain",
        stage="",
        axes={},
        set="test",
        mean=80.0,
        without=[],
        disagreement_baseline=None,
        studies=[_study(design)],
        **asdict(split(bits)),
    )
    lines = list(csv.DictReader(io.StringIO(as_csv.of_variances([split_cell]))))
    assert [line["stream"] for line in lines if line["of"] == design] == parts
    for line in lines:
        if line["of"] == design and line["low"]:
            value = float(line["share"] or line["std"])
            assert float(line["low"]) <= value <= float(line["high"])


def test_seeds_without_a_value_are_named() -> None:
    one = cell("drloc", [80.0, 82.0], missing_seeds=[2, 3], lost_seeds=[3])
    (line,) = csv.DictReader(io.StringIO(as_csv.of_cells([one])))
    assert (line["seeds"], line["missing_seeds"], line["lost_seeds"]) == ("0 1", "2 3", "3")
    assert line["unscored_seeds"] == line["diverged_seeds"] == ""

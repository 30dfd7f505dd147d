"""Every table compiles as LaTeX, whatever its cells are called."""

import shutil
import subprocess
from pathlib import Path

import numpy
import pytest

from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.per_image import CellSplit, split
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.findings.study import CrossedStudy
from vtjobs.analysis.output import by_dataset, render
from vtjobs.analysis.output.layout import Table, latex
from vtjobs.analysis.output.study_table import of_study
from vtjobs.analysis.stats.components import components
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.design import Design, rows

from .test_figures import cell, marked, seeds

NASTY = r"a_b&50%#1{x}~^\z $5 ± — − < > | 'q' \"r\"" + "\x1bc\u202e\n\n\t"

pytestmark = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")


def cells() -> list[Cell]:
    found = [
        cell("supervised", seeds(5, 80.0), dataset=NASTY),
        cell(NASTY, seeds(4, 81.0), dataset=NASTY, baseline=f"supervised-{NASTY}", gain=1.0),
        cell(
            "one",
            {3: 80.0},
            dataset=NASTY,
            planned=5,
            states={"failed": 3, "diverged": 1},
            missing_seeds=[0, 1],
        ),
    ]
    return marked(found)


def tables() -> dict[str, Table]:
    document = compare(cells(), ComparisonPlan(margin=0.2, min_effect=0.3, looks=(3, 5)))
    draw = numpy.random.default_rng(0)
    bits = {seed: draw.random(50) < 0.9 for seed in range(4)}
    planned = rows(Design.CROSSED, {"init": range(3), "order": range(3)}, repeat=2)
    values = draw.normal(80, 1, len(planned)).tolist()
    parts = components(Design.CROSSED, ["init", "order"], list(zip(planned, values, strict=True)))
    study = CrossedStudy(
        grid_id="g-1",
        metric="top1",
        vary={"init": 3, "order": 3},
        ride=["mix"],
        n=18,
        used=18,
        left_out={},
        planned=18,
        missing=[],
        why_not="",
        wiring=[],
        parts=parts,
    )
    return {
        "cells": render.of_cells(cells()),
        "wide": by_dataset.of_cells(
            marked([*cells(), cell("low", seeds(5, 70.0), dataset=NASTY)]), decimals=1
        ),
        "detail": render.of_descriptions(cells()),
        "comparisons": render.of_comparisons(document),
        "variances": render.of_variances(
            [
                CellSplit(
                    schema_version=1,
                    cell_id="c",
                    backbone=NASTY,
                    dataset=NASTY,
                    head=NASTY,
                    recipe="deit",
                    stage="",
                    axes={},
                    set="test",
                    mean=80.0,
                    without=[],
                    disagreement_baseline=1.0,
                    **to_plain(split(bits)),
                )
            ]
        ),
        "study": of_study(cells()[1], study),
    }


@pytest.mark.parametrize("name", ["cells", "wide", "detail", "comparisons", "variances", "study"])
def test_a_table_compiles_and_warns_of_nothing_missing(tmp_path: Path, name: str) -> None:
    lines = [
        r"\documentclass{article}",
        r"\usepackage{booktabs}",
        r"\begin{document}",
        latex(tables()[name]),
    ]
    (tmp_path / "table.tex").write_text("\n".join([*lines, r"\end{document}", ""]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in (tmp_path / "table.log").read_text(errors="replace")
    assert (tmp_path / "table.pdf").stat().st_size > 1000

"""Figures and the page that holds them.

What must be in them, and that they are the same every time.
"""

import csv
import io
import json
import math
import statistics
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy
import pytest

from vtjobs.analysis.findings.best_marks import marks
from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.gather import GridName, HeadRanking, Report
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.findings.reversals import Reversal
from vtjobs.analysis.findings.study import ArmsStudy, CrossedStudy
from vtjobs.analysis.output import page
from vtjobs.analysis.output.figures import curves as of_curves
from vtjobs.analysis.output.figures.canvas import MOST_LINES, Drawn
from vtjobs.analysis.stats.components import arms, components
from vtjobs.analysis.stats.over_datasets import ranks
from vtjobs.analysis.stats.summary import describe
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.comparing import Select
from vtjobs.jobs.run.design import Design, rows
from vtjobs.jobs.values import changed

from ...support.cells import cell as a_cell


def cell(name: str, values: dict[int, float], *, dataset: str = "digits", **more: Any) -> Cell:
    """Return a report's cell with its description."""
    found = a_cell(name, values, baseline=None if name == "supervised" else f"supervised-{dataset}")
    own = {"cell_id": f"{name}-{dataset}", "dataset": dataset, "description": describe(values)}
    return changed(found, **(own | more))


def marked(cells: list[Cell]) -> list[Cell]:
    found = zip(cells, marks(cells, ComparisonPlan()), strict=True)
    return [changed(one, marks=own) for one, own in found]


def document(cells: list[Cell], **more: Any) -> Report:
    """Return what `gather` makes of such cells."""
    states = {one.cell_id: dict.fromkeys(map(str, one.values), "completed") for one in cells}
    curves = {
        one.cell_id: {
            seed: {epoch: value - 10 / epoch for epoch in (1, 2, 3)}
            for seed, value in one.values.items()
        }
        for one in cells
    }
    found = Report(
        schema_version=1, vtjobs="0", grids=[GridName(grid_id="g-1", name="g", description="<b>why</b>")],
        metric="top1", set="test", select=Select.LAST, cells=marked(cells), states=states, apart={},
        comparisons=compare(cells, ComparisonPlan(min_effect=0.3, looks=(3, 5))), curves=curves,
        interrupted={cells[0].cell_id: [2]}, sets={}, sizes={}, images=[], studies={}, ranks=[],
        hours={cells[0].cell_id: 0.25},
    )  # fmt: skip
    return changed(found, **more)


def seeds(count: int, centre: float, spread: float = 0.3) -> dict[int, float]:
    draw = numpy.random.default_rng(int(10 * centre))
    return {
        seed: round(float(value), 2)
        for seed, value in enumerate(draw.normal(centre, spread, count))
    }


def usual(count: int = 5) -> list[Cell]:
    return [cell("supervised", seeds(count, 80.0)), cell("drloc", seeds(count, 80.9))]


@cache
def usual_figures() -> tuple[Report, list[Drawn]]:
    """Return a document of two heads with five seeds and its figures, drawn once."""
    whole = document(usual())
    return whole, page.figures(whole)


def usual_drawn() -> dict[str, Drawn]:
    return {figure.name: figure for figure in usual_figures()[1]}


def drawn(whole: Report) -> dict[str, Drawn]:
    return {figure.name: figure for figure in page.figures(whole)}


def data(figure: Drawn) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(figure.csv())))


class Reader(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")
        ]


def test_a_page_needs_nothing_but_itself() -> None:
    text = page.page(*usual_figures())
    found = Reader(text)
    assert not {"script", "iframe", "link", "img", "object"} & set(found.tags)
    # A figure's data lies beside the page, and is there for whoever asks.
    assert all(source.startswith(("#", "figures/")) for source in found.sources)
    assert "@import" not in text and "url(http" not in text


def test_a_page_opens_with_the_map_of_what_is_there_and_shows_the_names_of_the_grid_as_text() -> (
    None
):
    text = page.page(*usual_figures())
    assert text.index("Run status</h2>") < text.index("<table>")
    assert "&lt;b&gt;why&lt;/b&gt;" in text and "<b>why" not in text


def test_pages_figures_and_their_data_have_no_control_character(tmp_path: Path) -> None:
    hostile = "\x1bc\x1b]0;HACKED\x07\u202e"
    modes = {"head.mode": f"={hostile}"}
    cells = [cell("supervised", seeds(5, 80.0)), cell("drloc", seeds(5, 80.9), axes=modes)]
    grids = [GridName(grid_id="g-1", name="g", description=hostile)]
    written = page.write(document(cells, grids=grids), tmp_path)
    texts = [path for path in (written["page"], *written["figures"]) if path.suffix != ".pdf"]
    for text in (path.read_text() for path in texts):
        assert not set("\x1b\x07\u202e") & set(text)
        assert "\n=" not in text and ",=" not in text
    assert "HACKED" in written["page"].read_text()


def test_the_same_document_makes_the_same_files_byte_for_byte(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "other"):
        written = page.write(document(usual()), tmp_path / name)
        files = [written["page"], written["document"], *written["figures"]]
        contents.append({path.name: path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    assert {Path(name).suffix for name in contents[0]} == {".html", ".json", ".svg", ".pdf", ".csv"}


def test_every_seed_is_in_the_data_and_every_n_in_the_picture() -> None:
    cells = usual_figures()[0].cells
    figure = usual_drawn()["seeds"]
    values = {(row["cell"], int(row["seed"])): float(row["value"]) for row in data(figure)}
    assert values == {
        (f"vit {one.head}", seed): value for one in cells for seed, value in one.values.items()
    }
    assert figure.svg.count("n=5") == 2 and "80." in figure.text


def test_the_forest_has_each_difference_its_interval_n_and_verdict() -> None:
    whole, _ = usual_figures()
    figure = usual_drawn()["differences"]
    (one,), (row,) = whole.comparisons.comparisons, data(figure)
    assert (float(row["low"]), float(row["high"])) == tuple(one.interval)
    assert (
        one.verdict in figure.svg
        and f"n={one.n}, {one.n_baseline}" in figure.svg
        and "minimum effect of 0.3" in figure.text
    )


def test_curves_have_n_by_epoch_and_nothing_is_carried_forward() -> None:
    whole = document(usual())
    del whole.curves["drloc-digits"][4][3]
    rows_ = [row for row in data(drawn(whole)["curves"]) if row["line"] == "drloc"]
    assert [(int(row["epoch"]), int(row["n"])) for row in rows_] == [(1, 5), (2, 5), (3, 4)]


@pytest.mark.paper("VA-08", "VA-09")
def test_persistence_is_drawn_from_five_seeds_on_and_says_what_it_is_for() -> None:
    assert "No run is stopped early for its scores" in usual_drawn()["spread"].text
    few = drawn(document(usual(4)))["spread"]
    assert "needs at least five seeds" in few.svg and all(row["rho"] == "" for row in data(few))


@pytest.mark.paper("VA-09")
def test_the_figure_says_from_which_epoch_on_the_order_of_the_seeds_is_the_final_one() -> None:
    """Five seeds whose order is turned at epoch 2, and final from epoch 3 on."""
    final = dict(enumerate([70.0, 71.0, 72.0, 73.0, 74.0]))
    curves = {
        seed: {1: value - 20, 2: 120 - value, 3: value - 5, 4: value}
        for seed, value in final.items()
    }
    drawn_ = of_curves.spread({"deit_s digits drloc": curves}, metric="top1")
    assert drawn_ is not None
    told = "deit_s digits drloc: the correlation stays above 0.9 only from epoch 3 of 4."
    assert told in drawn_.text


@pytest.mark.paper("VA-08")
def test_early_scores_are_drawn_against_final_ones_with_their_rank_correlation() -> None:
    """Epochs 150, 250 and 290 of 300 (figure 6.10 of the thesis)."""
    epochs = [*range(10, 301, 10)]
    final = dict(enumerate([70.0, 71.0, 72.0, 73.0, 74.0]))
    curves = {
        seed: {epoch: value if epoch > 200 else 100 - value for epoch in epochs}
        for seed, value in final.items()
    }
    figure = of_curves.early({"drloc": curves}, metric="top1")
    assert figure is not None
    found = {(int(row["epoch"]), round(float(row["rho"]), 9)) for row in data(figure)}
    assert found == {(150, -1.0), (250, 1.0), (290, 1.0)}
    one = next(row for row in data(figure) if (row["epoch"], row["seed"]) == ("150", "4"))
    assert (float(one["early"]), float(one["final"])) == (26.0, 74.0)
    assert "epoch 150, ρ=-1.00" in figure.svg
    few = {seed: curves[seed] for seed in range(4)}
    assert of_curves.early({"drloc": few}, metric="top1") is None


@pytest.mark.paper("VA-13")
def test_the_spread_that_a_smaller_set_lets_expect_is_told() -> None:
    """Thesis, section 6.3.4: 0.10 over seeds on 50,000 images, so about 0.22 on V2's 10,000."""
    (one, *_) = usual(6)
    other = {one.cell_id: {seed: value - 12 for seed, value in one.values.items()}}
    sizes = {one.cell_id: {"test": 50_000, "v2": 10_000}}
    text = drawn(document([one], sets={"v2": other}, sizes=sizes))["sets-test-v2-supervis"].text
    std = statistics.stdev(one.values.values())
    assert f"Standard deviation {std:.2f} on 50,000 images of test" in text
    assert f"{std * math.sqrt(5):.2f} would be expected on v2." in text


@pytest.mark.paper("VA-18")
def test_diverged_and_failed_runs_are_in_the_picture_and_in_no_mean() -> None:
    cells = usual()
    cells[1] = changed(cells[1], states={"diverged": 1, "failed": 2})
    svg = drawn(document(cells))["seeds"].svg
    assert "1 diverged" in svg and "2 failed" in svg


@pytest.mark.paper("VA-06")
def test_thirty_seeds_have_a_distribution_and_twenty_nine_have_none() -> None:
    assert not [name for name in drawn(document(usual(29))) if name.startswith("distribution")]
    figure = drawn(document(usual(30)))["distribution-supervis"]
    assert (
        len(data(figure)) == 30
        and "n=30, normal fit" in figure.svg
        and "normal draws" in figure.text
    )


@pytest.mark.paper("VA-05", "VA-13")
def test_two_test_sets_are_drawn_against_each_other_with_the_best_of_each() -> None:
    cells = usual(6)
    other = {one.cell_id: {seed: value - 12 for seed, value in one.values.items()} for one in cells}
    whole = document(
        cells, sets={"v2": other}, sizes={one.cell_id: {"test": 898, "v2": 500} for one in cells}
    )
    figure = drawn(whole)["sets-test-v2-supervis"]
    assert "r=1.00" in figure.svg and "binomial error" in figure.svg
    assert "is the best on test and number 1 on v2" in figure.text


def test_backbones_that_change_places_are_told_where_no_head_is_compared() -> None:
    turned = Reversal(
        factor="backbone",
        dataset="digits",
        levels=["a", "b"],
        above=[{"difference": 1.0}],
        below=[{"difference": -1.0}],
    )
    whole = document(usual()[:1])
    whole = changed(whole, comparisons=changed(whole.comparisons, reversals=[turned]))
    assert "No single ranking of these backbones" in page.page(whole, page.figures(whole))


@pytest.mark.parametrize("design", [Design.CROSSED, Design.ONE_AT_A_TIME])
def test_shares_of_streams_are_drawn_with_intervals(design: Design) -> None:
    planned = rows(design, {"init": range(4), "order": range(4)}, repeat=2)
    values = numpy.random.default_rng(1).normal(80, 1, len(planned)).tolist()
    runs = list(zip(planned, values, strict=True))
    facts: dict[str, Any] = {
        "grid_id": "g-1",
        "metric": "top1",
        "vary": {},
        "ride": [],
        "n": len(planned),
        "used": len(planned),
        "left_out": {},
        "planned": len(planned),
        "missing": [],
        "why_not": "",
        "wiring": [],
    }
    names = ["init", "order"]
    study = (
        CrossedStudy(**facts, parts=components(design, names, runs))
        if design is Design.CROSSED
        else ArmsStudy(**facts, parts=arms(names, runs))
    )
    cells = usual()
    figure = drawn(document(cells, studies={cells[0].cell_id: [study]}))["streams-supervis-0"]
    kept = {row[figure.heading[0]]: row for row in data(figure)}
    assert {"init", "order"} <= kept.keys() and all(
        float(kept[name]["low"]) >= 0 for name in ("init", "order")
    )


def test_ranks_over_datasets_are_drawn_where_there_are_enough() -> None:
    def ranking(means: dict[str, dict[str, float]]) -> HeadRanking:
        return HeadRanking(backbone="vit", recipe="r", **to_plain(ranks(means)))

    means = {
        str(number): {"a": 80.0 + number, "b": 79.0 + number % 3, "c": 70.0} for number in range(6)
    }
    whole = document(usual(), ranks=[ranking(means)])
    assert (
        "critical difference" in drawn(whole)["ranks-0"].svg
        and "vit, r: mean" in drawn(whole)["ranks-0"].text
    )
    few = document(usual(), ranks=[ranking(dict(list(means.items())[:3]))])
    assert "ranks-0" not in drawn(few) and "5 are needed" in page.page(few, page.figures(few))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_report_of_few_seeds_has_no_figure_that_says_more_than_they_do(count: int) -> None:
    whole = document(usual(count))
    found = page.figures(whole)
    text = page.page(whole, found)
    assert found[0].name == "completeness"
    assert "nan" not in text.replace("nano", "").lower().split() and "± 0.00" not in text
    if count < 2:
        assert "±" not in drawn(whole)["completeness"].svg and "allocation" not in drawn(whole)


def test_seeds_that_are_all_equal_are_drawn() -> None:
    cells = [
        cell("supervised", dict.fromkeys(range(35), 80.0)),
        cell("drloc", dict.fromkeys(range(35), 80.0)),
    ]
    json.dumps(to_plain(document(cells)), allow_nan=False)
    assert {"seeds", "differences", "spread"} <= drawn(document(cells)).keys()


def test_of_many_cells_the_first_are_drawn_and_all_are_in_the_data() -> None:
    cells = [cell(f"head{number}", seeds(3, 70 + number / 10)) for number in range(MOST_LINES + 5)]
    figure = drawn(document(cells))["seeds"]
    assert f"The first {MOST_LINES} of {MOST_LINES + 5} cells are drawn" in figure.text
    assert len({row["cell"] for row in data(figure)}) == MOST_LINES + 5

"""Our cells beside printed numbers: which are compared, how, and with what word."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_ind_from_stats

from vtjobs.analysis.findings import by_neighbours
from vtjobs.analysis.findings.against import Row, Standing, against, readings_of
from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.coverage import coverage
from vtjobs.analysis.findings.matching import Made
from vtjobs.analysis.findings.published import PAPERS, records
from vtjobs.analysis.output import as_csv, published_table
from vtjobs.analysis.output.layout import latex, markdown
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.grid.checks import grid_document
from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.values import changed

from ...support.cells import cell as a_cell

RELVIT = "relvit.r.t2.cifar10.vit_s4.relvit"


def ours(
    values: list[float], grid: str = "relvit-table2", *, changes: dict[str, Any] | None = None,
    set_name: str = "test", best: list[float] | None = None, evaluations: int | None = None,
    **names: Any,
) -> Cell:  # fmt: skip
    """A cell of a ready grid as a report has it; `names` are its labels and axes.

    `head` is that of its chain's beginning.
    """
    wanted = {"backbone": "vit_s4", "dataset": "cifar10", "head": "relvit"} | names
    (made,) = [one for one in cells_of(grid, changes) if wanted.items() <= named(one).items()]
    return a_cell(
        "c",
        values,
        backbone=made.backbone,
        dataset=made.dataset,
        recipe=made.recipe,
        set=set_name,
        axes=made.axes,
        best_values=dict(enumerate(best or values)),
        evaluations=[evaluations or made.stages[0].recipe.epochs],
        fidelity={made.recipe: "paper"},
        specs=made.stages,
    )


def cells_of(
    grid: str, changes: dict[str, Any] | None = None, *, every_stage: bool = False
) -> list[Made]:
    """Those that no other one begins with, or all."""
    expansion = take_in(grid, changes=changes).expansion
    found = []
    for cell in expansion.cells if every_stage else expansion.ends():
        chain = expansion.chain(cell)
        found.append(
            Made(
                backbone=cell.labels["backbone"],
                dataset=cell.labels["dataset"],
                recipe=cell.labels["recipe"],
                axes={name: value for one in chain for name, value in one.axes.items()},
                stages=[one.spec.settings for one in chain],
            )
        )
    return found


def programs_values(grid: str) -> dict[str, Any]:
    """Changes of a grid: recipe and head by the published program."""
    axes = grid_document(grid, changes=None).data.get("axes", {})
    head = f"head.{grid.partition('-')[0]}.fidelity"
    return {"train.fidelity": "code", "axes": {**axes, head: ["code"]}}


def named(one: Made) -> dict[str, Any]:
    first = one.stages[-1]
    return {
        "backbone": one.backbone,
        "dataset": one.dataset,
        "head": first.head.name,
        "tasks": first.head.params.get("tasks"),
        "size": first.recipe.image_size,
        **one.axes,
    }


def row(cells: list[Cell], record: str = RELVIT, table: str = "relvit:2", **options: Any) -> Row:
    document = against(table, cells, **options)
    json.dumps(to_plain(document), allow_nan=False)
    return next(one for one in document.rows if one.id == record)


@pytest.mark.paper("RV-40")
def test_two_deviations_are_compared_by_welch_from_the_printed_summary() -> None:
    cell = ours([90.0, 90.2, 90.4, 90.1, 90.3])
    found = row([cell])
    wanted = ttest_ind_from_stats(cell.mean, cell.std, 5, 90.23, 0.09, 5, equal_var=False)
    assert found.p == pytest.approx(float(wanted.pvalue), rel=1e-9)
    assert found.difference == pytest.approx(90.2 - 90.23)
    assert found.p_worst >= found.p and found.p_adjusted == found.p_worst


@pytest.mark.paper("RV-40", "VA-20")
@pytest.mark.parametrize(
    ("values", "margin", "word"),
    [
        ([90.2, 90.25, 90.3, 90.15, 90.25], 0.5, "reproduced"),
        ([90.2, 90.25, 90.3, 90.15, 90.25], None, "inconclusive"),
        ([90.50, 90.55, 90.45, 90.52, 90.48], 0.5, "reproduced with a shift"),
        ([85.0, 85.1, 85.2, 85.0, 85.1], 0.5, "differs"),
        ([85.0, 95.0, 90.0, 88.0, 92.0], 0.5, "inconclusive"),
        ([90.2], 0.5, "inconclusive"),
    ],
)
def test_the_word_follows_from_the_test_and_the_margin(
    values: list[float], margin: float | None, word: str
) -> None:
    assert row([ours(values)], margin=margin).word == word


@pytest.mark.paper("DR-72")
def test_one_printed_number_is_one_more_draw() -> None:
    like: dict[str, Any] = {"grid": "drloc-table4", "backbone": "swin_t", "head": "drloc"}
    record = "drloc.r.t4.cifar10.swin_t.drloc"
    found = row([ours([83.8, 83.9, 84.0], **like)], record, "drloc:4")
    # t = 0.01 / (0.1 · √(1 + 1/3)) with two degrees of freedom.
    assert found.printed == 83.89 and found.p == pytest.approx(0.9388, abs=1e-3)
    two = row([ours([83.8, 83.9], **like)], record, "drloc:4")
    assert two.detail == "a test against a single number needs three seeds that differ"


@pytest.mark.paper("RV-21", "RV-24", "VA-20")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"train.epochs": 50}, "before it, train.epochs is 50, in relvit-table2 100"),
        ({"data.val": 0.1}, "dataset.val is 0.1, in relvit-table2 null"),
        (
            {"train.lr": 1e-3, "train.batch_size": 64},
            "train.batch_size is 64, in relvit-table2 256",
        ),
        (
            {"axes": {"head.relvit.weight": [0.5]}},
            "before it, head.relvit.weight is 0.5, in relvit-table2 1.0",
        ),
    ],
)
def test_what_was_made_otherwise_is_not_compared_and_says_in_what(
    changes: dict[str, Any], why: str
) -> None:
    found = row([ours([90.0, 90.1, 90.2], changes=changes)])
    assert (found.standing, found.word, found.p) == (
        Standing.MADE_OTHERWISE,
        "not comparable",
        None,
    )
    assert why in found.detail.split("; ")


def test_of_many_differences_the_first_are_named() -> None:
    other = {"lr": 1e-3, "batch_size": 64, "weight_decay": 0.3, "label_smoothing": 0.1}
    found = row([ours([90.0], changes={f"train.{name}": value for name, value in other.items()})])
    assert found.detail.count("; ") == 4 and found.detail.endswith("and 4 more settings")


def test_the_runs_that_went_well_are_not_compared_where_others_diverged() -> None:
    cell = changed(ours([90.0, 90.1, 90.2]), diverged_seeds=[3, 4])
    found = row([cell])
    assert (found.word, found.detail) == ("not comparable", "2 diverged runs without a score")


def test_how_a_step_is_computed_is_no_difference() -> None:
    changes = {"train.precision": "fp16", "train.channels_last": True}
    assert row([ours([90.0, 90.1, 90.2], changes=changes)]).comparable


def test_the_published_programs_values_are_held_against_those_of_the_ready_grid() -> None:
    code = programs_values("relvit-table2")
    assert row([ours([90.0, 90.1, 90.2], changes=code)]).comparable
    found = row([ours([90.0, 90.1, 90.2], changes={**code, "train.weight_decay": 0.2})])
    assert "train.weight_decay is 0.2, in relvit-table2 0.1" in found.detail


@pytest.mark.parametrize(
    "other",
    [
        {"backbone": "vit_s8", "dataset": "tiny_imagenet"},
        {"dataset": "svhn"},
        {"head": "supervised"},
        {"grid": "relvit-table3"},
        {"grid": "relvit-table4", "tasks": ["dist"]},
    ],
)
def test_another_cell_is_not_taken_for_theirs(other: dict[str, Any]) -> None:
    found = row([ours([90.0, 90.1, 90.2], **other)])
    assert found.detail == "no matching cell among ours; relvit-table2 runs it"
    assert found.standing is Standing.NOT_RUN and found.grid == "relvit-table2"


def test_a_cell_counts_by_its_settings_whatever_its_grid_and_its_labels_are() -> None:
    """The labels of a cell that two grids share are those of the grid that came first."""
    record = "thesis.r.t3.8.imagenet1k.deit_b.supervised.scratch.change=no_mixup"
    like = {"grid": "thesis-table3-8", "backbone": "deit_b", "dataset": "imagenet1k"}
    cell = ours([78.6, 78.7, 78.8], head="supervised", variant="no mixup", **like)
    assert row([cell], record, "thesis:3.8").comparable
    assert row([changed(cell, axes={}, recipe="mine")], record, "thesis:3.8").comparable
    assert not row([cell], record.replace("mixup", "cutmix"), "thesis:3.8").comparable


@pytest.mark.paper("DR-53")
def test_another_weight_or_number_of_pairs_is_another_variant() -> None:
    record = "drloc.r.t2a.cifar100.swin_t.drloc.lambda=0.5-m=64"
    like: dict[str, Any] = {"backbone": "swin_t", "dataset": "cifar100", "head": "drloc"}
    cell = ours([66.0, 66.1, 66.4], "drloc-table2a", **like, **{"head.drloc.pairs": 64})
    assert row([cell], record, "drloc:2a").comparable
    cell = ours([66.0, 66.1, 66.4], "drloc-table2a", **like, **{"head.drloc.pairs": 32})
    assert not row([cell], record, "drloc:2a").comparable


def test_a_weight_that_nobody_published_may_be_any() -> None:
    record = "drloc.r.t4.cifar10.resnet50.drloc"
    changes = {"overrides": [{"when": {"head": "drloc"}, "set": {"head.drloc.weight": 0.7}}]}
    like: dict[str, Any] = {"backbone": "resnet50_drloc", "head": "drloc", "changes": changes}
    assert row([ours([60.0, 60.1], "drloc-table4", **like)], record, "drloc:4").comparable


def test_weights_that_were_drawn_are_not_those_that_table_5_starts_from() -> None:
    changes = {"backbones": ["swin_t"], "recipe": "drloc-finetune", "overrides": []}
    like: dict[str, Any] = {"backbone": "swin_t", "head": "supervised", "changes": changes}
    cell = ours([95.0, 95.1], "drloc-table4", **like)
    found = row([cell], "drloc.r.t5.cifar10.swin_t.supervised", "drloc:5")
    assert found.detail == "backbone.weights is false, in drloc-table5 true"


def test_numbers_that_a_paper_cites_are_made_by_the_cited_papers_grid() -> None:
    record = "relvit.r.t3.flowers102.swin_t.drloc"
    like: dict[str, Any] = {"backbone": "swin_t", "dataset": "flowers102", "head": "drloc"}
    found = row([ours([39.0, 39.1, 39.2], "drloc-table4", **like)], record, "relvit:3")
    assert found.comparable and found.grid == "drloc-table4" and found.cited


@pytest.mark.paper("VA-20")
def test_a_cited_or_doubtful_number_is_marked_wherever_it_is_printed() -> None:
    for table, record, mark in (
        ("relvit:3", "relvit.r.t3.flowers102.swin_t.drloc", "(cited)"),
        ("relvit:2", "relvit.r.t2.cifar100.vit_s4.relvit", "(doubtful)"),
    ):
        document = against(table, [])
        (one,) = [number for number, found in enumerate(document.rows) if found.id == record]
        assert mark in published_table.of_rows(document).body[one][4]
        assert mark in markdown(published_table.as_printed(document))
        found = list(csv.DictReader(as_csv.of_published(document).splitlines()))[one]
        assert (found["cited"] == "True", bool(found["doubtful"])) == (
            *(mark == "(cited)", mark == "(doubtful)"),
        )


# What the paper's page looks like: rows and columns as it has them, ours below theirs.
LAYOUTS = Path(__file__).parents[2] / "golden" / "as_printed"


@pytest.mark.paper("OR-12")
@pytest.mark.parametrize("grid", ["drloc-table9", "relvit-table2"])
def test_a_table_is_laid_out_as_the_paper_prints_it(grid: str) -> None:
    found = markdown(published_table.as_printed(against(TABLES[grid], finished(grid))))
    assert found == (LAYOUTS / f"{grid}.md").read_text("utf-8")


# Ready grids that make every accuracy of their table.
TABLES = {
    "drloc-table2a": "drloc:2a",
    "drloc-table2b": "drloc:2b",
    "drloc-table3": "drloc:3",
    "drloc-table4": "drloc:4",
    "drloc-table5": "drloc:5",
    "drloc-table6": "drloc:6",
    "drloc-table7": "drloc:7",
    "drloc-table8": "drloc:8",
    "drloc-table9": "drloc:9",
    "drloc-table16": "drloc:16",
    "relvit-table2": "relvit:2",
    "relvit-table5": "relvit:5",
}


def finished(
    grid: str,
    set_name: str = "test",
    changes: dict[str, Any] | None = None,
    metric: str = "top1",
) -> list[Cell]:
    """All cells of a ready grid, each with three seeds."""
    return [
        a_cell(
            str(number),
            [50.0, 51.0, 52.0],
            backbone=made.backbone,
            dataset=made.dataset,
            recipe=made.recipe,
            set=set_name,
            metric=metric,
            axes=made.axes,
            best_values={0: 50.0, 1: 51.0, 2: 52.0},
            evaluations=[made.stages[0].recipe.epochs],
            specs=made.stages,
        )
        for number, made in enumerate(cells_of(grid, changes, every_stage=metric != "top1"))
    ]


@pytest.mark.paper("RV-32", "RV-42")
def test_a_head_that_is_scored_by_itself_is_compared_after_its_pre_training() -> None:
    cells = [
        cell
        for reading in readings_of("relvit:4")
        for cell in finished("relvit-table4", reading.set, metric=reading.metric)
    ]
    rows = against("relvit:4", cells).rows
    assert {one.detail for one in rows if not one.comparable} == set()
    found = Counter(one.metric for one in rows)
    assert found == {"top1": 16, "ssl_acc_sprel": 8, "ssl_acc_abspos": 8}


@pytest.mark.paper(
    "DR-24",
    "DR-50",
    "DR-51",
    "DR-52",
    "DR-54",
    "DR-55",
    "DR-56",
    "DR-57",
    "DR-70",
    "DR-71",
    "DR-72",
    "DR-73",
    "DR-74",
    "DR-75",
    "DR-77",
    "RV-23",
    "RV-30",
    "RV-34",
    "RV-40",
    "RV-44",
)
@pytest.mark.parametrize("grid", TABLES)
def test_a_ready_grid_makes_every_accuracy_of_its_table_once(grid: str) -> None:
    rows = against(TABLES[grid], finished(grid)).rows
    assert {one.detail for one in rows if not one.comparable} == set()
    assert len({one.id for one in rows}) == len(rows)


@pytest.mark.paper("DR-59")
@pytest.mark.parametrize("table", [12, 13])
def test_tables_of_segmentation_are_made_on_their_six_sizes_by_the_grid_with_their_pretraining(
    table: int,
) -> None:
    where = "test@scales0.5-0.75-1-1.25-1.5-1.75"
    cells = [
        cell
        for metric in ("miou", "macc")
        for cell in finished(f"drloc-table{table}", where, metric=metric)
    ]
    rows = against(f"drloc:{table}", cells).rows
    assert len(rows) == 4 and {one.detail for one in rows if not one.comparable} == set()
    # Pre-trained on the other table's images, they are another method.
    assert not any(one.comparable for one in against(f"drloc:{25 - table}", cells).rows)


@pytest.mark.paper("DR-58")
@pytest.mark.parametrize("table", [10, 11])
def test_tables_of_detection_are_made_with_mask_r_cnn_by_the_grid_with_their_pretraining(
    table: int,
) -> None:
    metrics = [f"{name}_{of}" for of in ("box", "mask") for name in ("ap", "ap50", "ap75")]
    cells = [cell for metric in metrics for cell in finished(f"drloc-table{table}", metric=metric)]
    rows = against(f"drloc:{table}", cells).rows
    of_mask_rcnn = [one for one in rows if "=mask_rcnn" in one.id]
    assert len(of_mask_rcnn) == 12
    assert {one.detail for one in of_mask_rcnn if not one.comparable} == set()
    assert not any(one.comparable for one in rows if "=cascade" in one.id)
    # Pre-trained on the other table's images, they are another method.
    assert not any(one.comparable for one in against(f"drloc:{21 - table}", cells).rows)


@pytest.mark.paper("DE-20", "CA-11")
def test_a_student_is_compared_whatever_file_its_teacher_was_read_from() -> None:
    (cell, *_) = finished("thesis-cait-distilled")
    (settings,) = cell.specs
    teacher = settings.head.params["teacher"]
    read = teacher | {"weights": {"fingerprint": "sha256:0123"}}
    head = changed(settings.head, params=settings.head.params | {"teacher": read})
    ours = changed(cell, specs=[changed(settings, head=head)])
    rows = against("thesis:3.15", [ours]).rows
    assert [one.id for one in rows if one.comparable] == [
        "thesis.r.t3.15.imagenet1k.cait_xxs24.distilled_hard.scratch"
    ]
    other = teacher | {"model": "regnety_080"}
    head = changed(settings.head, params=settings.head.params | {"teacher": other})
    rows = against("thesis:3.15", [changed(cell, specs=[changed(settings, head=head)])]).rows
    (told,) = [one.detail for one in rows if "teacher" in one.detail]
    assert "head.distill.teacher is" in told and "in thesis-cait-distilled" in told


@pytest.mark.paper("RV-31", "RV-41")
def test_table_3_of_relvit_is_made_by_its_grid_and_the_cited_papers() -> None:
    cells = [*finished("relvit-table3"), *finished("drloc-table4")]
    rows = against("relvit:3", cells).rows
    assert len(rows) == 32 and {one.detail for one in rows if not one.comparable} == set()


@pytest.mark.paper("D3-07")
def test_table_6_6_is_made_on_three_sets_by_two_grids() -> None:
    cells = [
        cell
        for grid in ("thesis-lowres", "thesis-deit3")
        for set_name in ("test", "v2", "real")
        for cell in finished(grid, set_name)
    ]
    rows = against("thesis:6.6", cells).rows
    assert [one.detail for one in rows if not one.comparable] == []
    assert len(rows) == 66


DEIT = "thesis-deit thesis-deit-384 thesis-distilled thesis-distilled-384"
CAIT = "thesis-cait thesis-cait-384 thesis-cait-distilled thesis-cait-distilled-384"


@pytest.mark.paper(
    "DE-11",
    "DE-12",
    "DE-13",
    "DE-20",
    "CA-03",
    "CA-12",
    "CA-13",
    "CA-14",
    "CA-15",
    "RM-03",
    "PC-04",
    "PC-10",
    "PC-11",
    "PC-14",
    "D3-06",
    "D3-10",
    "D3-11",
    "D3-13",
    "D3-17",
)
@pytest.mark.parametrize(
    ("table", "grids", "count"),
    [
        ("3.3", DEIT, 24),
        # Those of RegNet are cited.
        ("3.5", DEIT, 36),
        # At 224 pixels, but for ImageNet itself.
        ("3.4.4-text", "thesis-cifar10", 3),
        ("3.5.3-text", "thesis-table3-11 thesis-fixed-factors", 8),
        ("3.6.3-text", "thesis-cait", 1),
        ("3.7.2.4-text", "thesis-cait", 1),
        ("3.7", "thesis-table3-7", 12),
        ("3.8", "thesis-table3-8 thesis-table3-8-384", 25),
        ("3.10", "thesis-deit thesis-deit-384", 12),
        ("3.11", "thesis-table3-11", 20),
        ("3.12", "thesis-table3-12", 12),
        ("3.13", "thesis-table3-13", 13),
        ("2.15", "thesis-table2-15", 40),
        ("2.16", "thesis-table2-16", 40),
        ("3.20", f"thesis-table3-20 {CAIT}", 12),
        ("3.21", "thesis-table3-21", 8),
        ("4.3", "thesis-resmlp thesis-table4-3", 39),
        ("6.2", "thesis-table6-2", 15),
        ("6.3", "thesis-table6-3", 24),
        ("6.4", "thesis-table6-4", 42),
        ("3.14", "thesis-cait-distilled", 2),
        ("3.15", CAIT, 36),
        ("3.17", CAIT, 24),
        ("3.19", "thesis-table3-19 thesis-cait thesis-cait-distilled", 28),
        ("3.22", CAIT, 36),
        ("4.4", "thesis-table4-4", 12),
        ("5.5", "thesis-table5-5", 12),
        ("5.1", "thesis-patchconvnet", 8),
        ("5.3.4-text", "thesis-attention-pooling", 2),
        ("5.7", "thesis-table5-7", 6),
        ("5.8", "thesis-table5-8", 14),
        ("6.7", "thesis-deit3 thesis-deit3-384", 14),
        ("6.13", "thesis-table6-13", 33),
        ("6.15", "thesis-deit3", 42),
    ],
)
def test_models_of_the_thesis_are_compared_on_all_its_sets(
    table: str, grids: str, count: int
) -> None:
    cells = [
        cell
        for grid in grids.split()
        for name in {one.set for one in readings_of(f"thesis:{table}")}
        for cell in finished(grid, name)
    ]
    rows = against(f"thesis:{table}", cells).rows
    assert sum(one.comparable for one in rows) == count
    assert {one.standing for one in rows if not one.comparable} <= {Standing.NO_GRID}


@pytest.mark.paper("GR-12", "GR-13", "GR-15")
@pytest.mark.parametrize(
    ("table", "grid", "count"),
    [
        ("2.4", "thesis-table2-7", 8),
        ("2.6", "thesis-table2-14", 98),
        ("2.7", "thesis-table2-7", 24),
        ("2.11", "thesis-table2-11", 16),
        ("2.12", "thesis-table2-12", 1),
        ("2.13", "thesis-table2-13", 12),
        ("2.14", "thesis-table2-14", 372),
    ],
)
def test_grafits_tables_are_compared_by_neighbours(table: str, grid: str, count: int) -> None:
    name = f"thesis:{table}"
    cells = [
        cell
        for set_name, metric in readings_of(name)
        for cell in finished(grid, set_name, metric=metric)
    ]
    rows = against(name, cells).rows
    assert sum(one.comparable for one in rows) == count
    assert {one.standing for one in rows if not one.comparable} <= {Standing.NO_GRID}
    assert len({one.id for one in rows}) == len(rows), "each number has one cell of ours"


@pytest.mark.paper("GR-15")
@pytest.mark.parametrize(
    ("record", "dataset", "set_name", "metric", "method"),
    [
        ("2.4.cifar100.resnet50.baseline.map", "cifar100_coarse", "test@cifar100", "map", "supervised"),
        ("2.4.cifar100.resnet50.grafit_fc.map", "cifar100_coarse", "test@cifar100", "map_conditioned", "knn+inst, fc"),
        ("2.4.cifar100.resnet50.snca_plus.map", "cifar100_coarse", "test@cifar100", "map", "knn, mlp"),
        ("2.6.inat18.resnet50.grafit.class.order", "inat2018_class", "test@inat2018_order", "map_conditioned", "knn+inst, mlp"),
    ],
)  # fmt: skip
def test_a_grafit_number_is_of_one_training_one_set_and_one_metric(
    record: str, dataset: str, set_name: str, metric: str, method: str
) -> None:
    one = records("thesis")[f"thesis.r.t{record}"]
    trained = by_neighbours.trained(one, {"inat18": "inat2018"}.get(one.dataset, one.dataset))
    assert trained == (dataset, set_name, metric)
    assert by_neighbours.method_of_record(one) == method


def test_a_score_that_evaluate_has_not_made_is_named() -> None:
    cells = [
        changed(cell, n=0, mean=None, std=None)
        for set_name, metric in readings_of("thesis:2.12")
        for cell in finished("thesis-table2-12", set_name, metric=metric)
    ]
    (only,) = against("thesis:2.12", cells).rows
    assert only.detail == "our cell has no finished run"
    reading = ("test@cifar100", "knn20")
    cells = [
        changed(cell, n=0) for cell in finished("thesis-table2-7", *reading[:1], metric="knn20")
    ]
    details = {one.detail for one in against("thesis:2.7", cells).rows}
    assert "our cell has no finished run with knn20 on test@cifar100" in details


@pytest.mark.parametrize("grid", TABLES)
def test_a_ready_grid_with_the_programs_values_makes_its_table_too(grid: str) -> None:
    rows = against(TABLES[grid], finished(grid, changes=programs_values(grid))).rows
    assert {one.detail for one in rows if not one.comparable} == set()


@pytest.mark.paper("VA-20")
@pytest.mark.parametrize("paper", PAPERS)
def test_every_accuracy_is_made_by_a_ready_grid_or_says_why_not(paper: str) -> None:
    for one in coverage(paper, []):
        assert one.standings[Standing.NOT_RUN] + one.standings[Standing.NO_GRID] == one.accuracies
        assert one.grids or not one.standings[Standing.NOT_RUN]
    for one in (row for table in _tables(paper) for row in against(table, []).rows):
        assert one.detail.startswith(("no matching cell", "recipe ", "backbone ", "no grid "))


def _tables(paper: str) -> list[str]:
    return [f"{paper}:{table}" for table in {one.table for one in records(paper).values()}]


@pytest.mark.paper("PC-14")
def test_a_table_without_scores_of_ours_says_what_it_has() -> None:
    assert [one.set for one in readings_of("thesis:6.6")] == ["test", "real", "v2"]
    with pytest.raises(NothingMatched, match=r"no scores to compare\. It has: ap50_box"):
        readings_of("thesis:5.6")


def test_coverage_counts_a_number_once_by_its_standing() -> None:
    cells = [*finished("relvit-table2")[:4], ours([90.0, 90.1], changes={"train.epochs": 50})]
    (table,) = [one for one in coverage("relvit", cells) if one.table == "2"]
    assert table.accuracies == 12 and table.grids == ["relvit-table2"]
    assert table.standings[Standing.COMPARED] == 4 == sum(table.words.values())
    text = markdown(published_table.of_coverage(coverage("relvit", cells)))
    assert "| 2 " in text and "| all " in text


@pytest.mark.paper("OR-12")
def test_as_papers_print_it_ours_stand_below_theirs_and_other_cells_do_not() -> None:
    cells = finished("drloc-table9")
    half = against("drloc:9", cells[:3])
    text = markdown(published_table.as_printed(half))
    assert text.count("51.00 ± 1.00 (n=3)") == 3 and "3 of 6 printed numbers" in text
    assert text.splitlines()[0].count("|") == 9


def test_every_accuracy_of_the_table_has_its_row_and_every_layout_holds_it() -> None:
    document = against("relvit:2", [ours([90.2, 90.25, 90.3, 90.15, 90.25])], margin=0.5)
    assert len(document.rows) == 12
    for text in (
        markdown(published_table.of_rows(document)),
        latex(published_table.of_rows(document)),
    ):
        assert (
            "90.23" in text
            and "reproduced" in text
            and "no matching cell" in text
            and "nan" not in text.lower()
        )


@pytest.mark.paper("D3-18", "VA-03")
def test_a_study_over_seeds_on_another_test_set_is_compared_with_that_set() -> None:
    like: dict[str, Any] = {"backbone": "resnet50", "dataset": "imagenet1k", "head": "supervised"}
    record = "thesis.statistics.tfig6.7.imagenet_v2.resnet50.supervised"
    cell = ours([67.9, 68.1, 68.0], "thesis-seeds", set_name="v2", **like)
    found = row([cell], record, "thesis:fig6.7", margin=1.0)
    assert (found.printed, found.printed_std, found.printed_n) == (67.99, 0.23, 100)
    assert found.word == "reproduced"
    on_test = ours([67.9, 68.1, 68.0], "thesis-seeds", **like)
    assert row([on_test], record, "thesis:fig6.7").standing is Standing.NOT_RUN
    unscored = changed(cell, n=0, values={}, mean=None, std=None)
    found = row([unscored], record, "thesis:fig6.7")
    assert found.detail == "our cell has no finished run with a score on v2"


def test_low_resolution_first_is_told_apart_by_where_it_began() -> None:
    record = "thesis.r.t6.6.imagenet1k.vit_b.supervised.400.lowres_finetune224.128"
    like: dict[str, Any] = {"backbone": "deit3_b", "dataset": "imagenet1k", "head": "supervised"}
    like |= {"grid": "thesis-lowres", "train.epochs": 400}
    cells = [ours([83.1, 83.2, 83.3], size=size, **like) for size in (128, 160)]
    assert row(cells[:1], record, "thesis:6.6").comparable
    assert row(cells[1:], record, "thesis:6.6").standing is Standing.NOT_RUN


def test_one_decimal_leaves_more_open_than_two() -> None:
    def units(paper: str, table: str) -> set[float]:
        return {one.half_unit for one in records(paper).values() if one.table == table}

    assert (units("drloc", "4"), units("thesis", "6.6")) == ({0.005}, {0.05})
    assert (units("thesis", "fig6.7"), units("drloc", "14")) == ({0.005}, {0.00005})


def test_a_deviation_over_an_unknown_number_of_runs_is_not_tested() -> None:
    like: dict[str, Any] = {"backbone": "deit_b", "dataset": "imagenet1k", "head": "supervised"}
    cell = ours([81.0, 81.1, 81.2], "thesis-table3-8", variant="none", **like)
    found = row(
        [cell], "thesis.r.t3.8.imagenet1k.deit_b.supervised.scratch.change=none", "thesis:3.8"
    )
    assert (found.printed, found.p, found.detail) == (
        81.8,
        None,
        "the paper's number of runs is unknown",
    )


def test_ours_are_chosen_as_theirs_were_and_the_last_epoch_stands_beside_them() -> None:
    last, best = [90.0, 90.2, 90.4], [90.5, 90.6, 90.7]
    document = against("relvit:2", [ours(last, best=best)])
    found = next(one for one in document.rows if one.ours_n)
    assert document.selection == "best"
    assert (found.ours, found.ours_last) == pytest.approx((90.6, 90.2))
    text = markdown(published_table.of_rows(document))
    assert (
        "90.60 ± 0.10" in text
        and "90.20 ± 0.20" in text
        and "ours are chosen in the same way" in text
    )


def test_the_thesis_prints_the_last_epoch() -> None:
    document = against("thesis:fig6.7", [ours([79.7, 79.8, 79.9], best=[99.0, 99.0, 99.0])])
    assert document.selection == "last" and "best epoch" not in markdown(
        published_table.of_rows(document)
    )
    assert all(one.ours in (None, pytest.approx(79.8)) for one in document.rows)


def test_the_best_of_few_evaluations_is_no_best_epoch() -> None:
    found = row([ours([90.0, 90.2, 90.4], evaluations=10)])
    assert (found.word, found.detail) == (
        "not comparable",
        "our best is of 10 of 100 epochs: set evaluate_every: 1",
    )

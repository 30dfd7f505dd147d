"""Our cells beside printed numbers: which are compared, how, and with what word."""

import json
from typing import Any

import pytest
from scipy.stats import ttest_ind_from_stats

from vtjobs.analysis.findings.against import Row, against
from vtjobs.analysis.findings.cell import Cell, StageSpec
from vtjobs.analysis.findings.published import records
from vtjobs.analysis.output.layout import latex, markdown
from vtjobs.analysis.output.render import of_published
from vtjobs.jobs.documents import changed, to_plain
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.heads import HEADS
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.settings import HeadSettings

from ...support.cells import cell as a_cell

RELVIT = "relvit.r.t2.cifar10.vit_s4.relvit"


CHAIN = ("supervised", "relvit")


def ours(
    values: list[float], *, backbone: str = "vit_s4", dataset: str = "cifar10", heads: tuple[str, ...] = CHAIN,
    recipe: str = "relvit-finetune", changes: dict[str, Any] | None = None, params: dict[str, Any] | None = None,
    set_name: str = "test", axes: dict[str, Any] | None = None, first: dict[str, Any] | None = None,
    best: list[float] | None = None, evaluations: int | None = None,
) -> Cell:  # fmt: skip
    """A cell as a report has it: the heads of its chain from the last stage back."""
    data = catalogue.dataset(dataset)
    fields = Recipe.model_validate(
        catalogue.recipe_data(recipe, dataset=dataset) | (changes or {})
    ).settings
    statistics = catalogue.recipe_file(recipe).statistics(
        dataset, channels=data.channels, image_size=fields.image_size
    )
    specs = [
        StageSpec(
            head=_head(head, params or {}),
            recipe=changed(fields, **(first or {} if number == len(heads) - 1 else {})),
            dataset=changed(data, **statistics),
        )
        for number, head in enumerate(heads)
    ]
    return a_cell(
        "c",
        values,
        backbone=backbone,
        dataset=dataset,
        recipe=recipe,
        set=set_name,
        axes=axes or {},
        best_values=dict(enumerate(best or values)),
        evaluations=[evaluations or specs[0].recipe.epochs],
        fidelity={recipe: "paper"},
        specs=specs,
    )


def _head(name: str, params: dict[str, Any]) -> HeadSettings:
    given = {} if name == "supervised" else params
    values = HEADS[name].model.model_validate(given).model_dump(mode="json")
    # What only a backbone could say is left out.
    return HeadSettings(name=name, params={k: v for k, v in values.items() if v is not None})


def row(cells: list[Cell], record: str = RELVIT, table: str = "relvit:2", **options: Any) -> Row:
    document = against(table, cells, **options)
    json.dumps(to_plain(document), allow_nan=False)
    return next(one for one in document.rows if one.id == record)


def test_two_deviations_are_compared_by_welch_from_the_printed_summary() -> None:
    cell = ours([90.0, 90.2, 90.4, 90.1, 90.3])
    found = row([cell])
    wanted = ttest_ind_from_stats(cell.mean, cell.std, 5, 90.23, 0.09, 5, equal_var=False)
    assert found.p == pytest.approx(float(wanted.pvalue), rel=1e-9)
    assert found.difference == pytest.approx(90.2 - 90.23)
    assert found.p_worst >= found.p and found.p_adjusted == found.p_worst


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


def test_one_printed_number_is_one_more_draw() -> None:
    like: dict[str, Any] = {
        "heads": ("drloc",),
        "recipe": "drloc-scratch",
        "params": {"weight": 0.5},
    }
    like["backbone"] = "swin_t"
    record = "drloc.r.t4.cifar10.swin_t.drloc"
    found = row([ours([83.8, 83.9, 84.0], **like)], record, "drloc:4")
    # t = 0.01 / (0.1 · √(1 + 1/3)) with two degrees of freedom.
    assert found.printed == 83.89 and found.p == pytest.approx(0.9388, abs=1e-3)
    two = row([ours([83.8, 83.9], **like)], record, "drloc:4")
    assert two.detail == "a test against a single number needs three seeds that differ"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"recipe": "relvit-joint"}, "our recipe is relvit-joint, the paper's is relvit-finetune"),
        ({"changes": {"epochs": 50}}, "50 epochs, the paper's 100"),
        (
            {"changes": {"lr": 1e-3, "batch_size": 64}},
            "train.batch_size was changed; train.lr was changed",
        ),
    ],
)
def test_what_was_made_otherwise_is_not_compared(change: dict[str, Any], why: str) -> None:
    found = row([ours([90.0, 90.1, 90.2], **change)])
    assert (found.word, found.detail, found.p) == ("not comparable", why, None)


def test_the_runs_that_went_well_are_not_compared_where_others_diverged() -> None:
    cell = changed(ours([90.0, 90.1, 90.2]), diverged_seeds=[3, 4])
    found = row([cell])
    assert (found.word, found.detail) == ("not comparable", "2 diverged runs without a score")


def test_how_a_step_is_computed_is_no_difference() -> None:
    assert row(
        [ours([90.0, 90.1, 90.2], changes={"precision": "fp16", "channels_last": True})]
    ).comparable


@pytest.mark.parametrize(
    "other",
    [
        {"backbone": "vit_s8"},
        {"dataset": "svhn"},
        {"heads": ("supervised", "supervised")},
        {"heads": ("relvit",)},
        {"params": {"tasks": ["dist"]}},
    ],
)
def test_another_cell_is_not_taken_for_theirs(other: dict[str, Any]) -> None:
    assert row([ours([90.0, 90.1, 90.2], **other)]).detail == "no matching cell among ours"


def test_another_weight_or_number_of_pairs_is_another_variant() -> None:
    record = "drloc.r.t2a.cifar100.swin_t.drloc.lambda=0.5-m=64"
    like = {
        "backbone": "swin_t",
        "dataset": "cifar100",
        "heads": ("drloc",),
        "recipe": "drloc-scratch",
    }
    theirs = ours([66.0, 66.1, 66.4], params={"weight": 0.5, "pairs": 64}, **like)
    assert row([theirs], record, "drloc:2a").comparable
    for params in ({"weight": 0.1, "pairs": 64}, {"weight": 0.5, "pairs": 32}):
        assert not row([ours([66.0, 66.1], params=params, **like)], record, "drloc:2a").comparable


def test_the_papers_names_of_backbones_and_protocols_are_ours() -> None:
    cell = ours(
        [90.1] * 2 + [90.5],
        backbone="cvt_13_drloc",
        heads=("drloc",),
        recipe="drloc-scratch",
        params={"weight": 0.1},
    )
    assert row([cell], "drloc.r.t4.cifar10.cvt_13.drloc", "drloc:4").comparable
    flowers = ours([45.0, 45.5, 46.0], backbone="vit_s32", dataset="flowers102_relvit")
    assert row([flowers], "relvit.r.t2.flowers102.vit_s32.relvit").comparable


def test_every_accuracy_of_the_table_has_its_row_and_every_layout_holds_it() -> None:
    document = against("relvit:2", [ours([90.2, 90.25, 90.3, 90.15, 90.25])], margin=0.5)
    assert len(document.rows) == 12
    for text in (markdown(of_published(document)), latex(of_published(document))):
        assert (
            "90.23" in text
            and "reproduced" in text
            and "no matching cell" in text
            and "nan" not in text.lower()
        )


def test_a_study_over_seeds_on_another_test_set_is_compared_with_that_set() -> None:
    like: dict[str, Any] = {
        "backbone": "resnet50",
        "dataset": "imagenet1k",
        "heads": ("supervised",),
        "recipe": "resnet50-a2",
    }
    record = "thesis.statistics.tfig6.7.imagenet_v2.resnet50.supervised"
    found = row(
        [ours([67.9, 68.1, 68.0], set_name="v2", **like)], record, "thesis:fig6.7", margin=1.0
    )
    assert (found.printed, found.printed_std, found.printed_n) == (67.99, 0.23, 100)
    assert found.word == "reproduced"
    assert (
        row([ours([67.9, 68.1, 68.0], **like)], record, "thesis:fig6.7").detail
        == "no matching cell among ours"
    )


def test_low_resolution_first_is_told_apart_by_where_it_began() -> None:
    record = "thesis.r.t6.6.imagenet1k.vit_b.supervised.400.lowres_finetune224.128"
    like: dict[str, Any] = {
        "backbone": "deit3_b",
        "dataset": "imagenet1k",
        "recipe": "deit3-finetune",
    }
    like["heads"] = ("supervised", "supervised")
    cells = [
        ours([83.1, 83.2, 83.3], first={"image_size": size, "epochs": 400}, **like)
        for size in (128, 160)
    ]
    assert row(cells[:1], record, "thesis:6.6").comparable
    assert row(cells[1:], record, "thesis:6.6").detail == "no matching cell among ours"


def test_an_ablation_is_compared_with_the_record_of_its_change() -> None:
    like: dict[str, Any] = {
        "backbone": "deit_b",
        "dataset": "imagenet1k",
        "heads": ("supervised",),
        "recipe": "deit",
    }
    cell = ours([78.6, 78.7, 78.8], axes={"variant": "no mixup"}, changes={"mixup": 0.0}, **like)
    record = "thesis.r.t3.8.imagenet1k.deit_b.supervised.scratch.change=no_mixup"
    assert row([cell], record, "thesis:3.8").comparable
    assert not row([cell], record.replace("mixup", "cutmix"), "thesis:3.8").comparable


def test_one_decimal_leaves_more_open_than_two() -> None:
    assert {one.half_unit for one in records("drloc").values()} == {0.005}
    assert {one.half_unit for one in records("thesis").values() if one.table != "fig6.7"} == {0.05}


def test_a_deviation_over_an_unknown_number_of_runs_is_not_tested() -> None:
    like: dict[str, Any] = {
        "backbone": "deit_b",
        "dataset": "imagenet1k",
        "heads": ("supervised",),
        "recipe": "deit",
    }
    cell = ours([81.0, 81.1, 81.2], axes={"variant": "none"}, **like)
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
    text = markdown(of_published(document))
    assert (
        "90.60 ± 0.10" in text
        and "90.20 ± 0.20" in text
        and "ours are chosen in the same way" in text
    )


def test_the_thesis_prints_the_last_epoch() -> None:
    document = against("thesis:fig6.7", [ours([79.7, 79.8, 79.9], best=[99.0, 99.0, 99.0])])
    assert document.selection == "last" and "best epoch" not in markdown(of_published(document))
    assert all(one.ours in (None, pytest.approx(79.8)) for one in document.rows)


def test_the_best_of_few_evaluations_is_no_best_epoch() -> None:
    found = row([ours([90.0, 90.2, 90.4], evaluations=10)])
    assert (found.word, found.detail) == (
        "not comparable",
        "our best is of 10 of 100 epochs: set evaluate_every: 1",
    )

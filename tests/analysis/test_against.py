"""Our cells beside printed numbers: which are compared, how, and with what word."""

import json
import statistics
from typing import Any

import pytest
from scipy.stats import ttest_ind_from_stats

from vtjobs.analysis.against import against
from vtjobs.analysis.render import latex, markdown, of_published
from vtjobs.jobs import library
from vtjobs.jobs.heads import HEADS

RELVIT = "relvit.r.t2.cifar10.vit_s4.relvit"


CHAIN = ("supervised", "relvit")


def ours(
    values: list[float], *, backbone: str = "vit_s4", dataset: str = "cifar10", heads: tuple[str, ...] = CHAIN,
    recipe: str = "relvit-finetune", changes: dict[str, Any] | None = None, params: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A cell as a report has it: the heads of its chain from the last stage back."""
    n = len(values)
    fields = library.recipe_data(recipe) | (changes or {})
    return {
        "cell_id": "c",
        "backbone": backbone,
        "dataset": dataset,
        "recipe": recipe,
        "set": "test",
        "n": n,
        "mean": statistics.fmean(values) if n else None,
        "std": statistics.stdev(values) if n > 1 else None,
        "fidelity": {recipe: "paper"},
        "specs": [{"head": _head(head, params or {}), "recipe": fields} for head in heads],
    }


def _head(name: str, params: dict[str, Any]) -> dict[str, Any]:
    given = {} if name == "supervised" else params
    return {"name": name, "params": HEADS[name].model_validate(given).model_dump(mode="json")}


def row(cells: list[dict[str, Any]], record: str = RELVIT, table: str = "relvit:2", **options: Any) -> dict[str, Any]:
    document = against(table, cells, **options)
    json.dumps(document, allow_nan=False)
    return dict(next(one for one in document["rows"] if one["id"] == record))


def test_two_deviations_are_compared_by_welch_from_the_printed_summary() -> None:
    cell = ours([90.0, 90.2, 90.4, 90.1, 90.3])
    found = row([cell])
    wanted = ttest_ind_from_stats(cell["mean"], cell["std"], 5, 90.23, 0.09, 5, equal_var=False)
    assert found["p"] == pytest.approx(float(wanted.pvalue), rel=1e-9)
    assert found["difference"] == pytest.approx(90.2 - 90.23)
    assert found["p_worst"] >= found["p"] and found["p_adjusted"] == found["p_worst"]


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
def test_the_word_follows_from_the_test_and_the_margin(values: list[float], margin: float | None, word: str) -> None:
    assert row([ours(values)], margin=margin)["word"] == word


def test_one_printed_number_is_one_more_draw() -> None:
    like: dict[str, Any] = {"heads": ("drloc",), "recipe": "drloc-scratch", "params": {"weight": 0.5}}
    like["backbone"] = "swin_t"
    record = "drloc.r.t4.cifar10.swin_t.drloc"
    found = row([ours([83.8, 83.9, 84.0], **like)], record, "drloc:4")
    # t = 0.01 / (0.1 · √(1 + 1/3)) with two degrees of freedom.
    assert found["printed"] == 83.89 and found["p"] == pytest.approx(0.9388, abs=1e-3)
    two = row([ours([83.8, 83.9], **like)], record, "drloc:4")
    assert two["detail"] == "a single number needs three seeds beside it"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"recipe": "relvit-joint"}, "recipe relvit-joint, theirs is relvit-finetune"),
        ({"changes": {"epochs": 50}}, "50 epochs, theirs 100"),
        ({"changes": {"lr": 1e-3, "batch_size": 64}}, "train.batch_size was changed; train.lr was changed"),
    ],
)
def test_what_was_made_otherwise_is_not_compared(change: dict[str, Any], why: str) -> None:
    found = row([ours([90.0, 90.1, 90.2], **change)])
    assert (found["word"], found["detail"], found["p"]) == ("not comparable", why, None)


def test_how_a_step_is_computed_is_no_difference() -> None:
    assert row([ours([90.0, 90.1, 90.2], changes={"precision": "fp16", "channels_last": True})])["comparable"]


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
    assert row([ours([90.0, 90.1, 90.2], **other)])["detail"] == "no cell of ours"


def test_another_weight_or_number_of_pairs_is_another_variant() -> None:
    record = "drloc.r.t2a.cifar100.swin_t.drloc.lambda=0.5-m=64"
    like = {"backbone": "swin_t", "dataset": "cifar100", "heads": ("drloc",), "recipe": "drloc-scratch"}
    theirs = ours([66.0, 66.1, 66.4], params={"weight": 0.5, "pairs": 64}, **like)
    assert row([theirs], record, "drloc:2a")["comparable"]
    for params in ({"weight": 0.1, "pairs": 64}, {"weight": 0.5, "pairs": 32}):
        assert not row([ours([66.0, 66.1], params=params, **like)], record, "drloc:2a")["comparable"]


def test_the_papers_names_of_backbones_and_protocols_are_ours() -> None:
    cell = ours(
        [90.1] * 2 + [90.5], backbone="cvt_13_drloc", heads=("drloc",), recipe="drloc-scratch", params={"weight": 0.1}
    )
    assert row([cell], "drloc.r.t4.cifar10.cvt_13.drloc", "drloc:4")["comparable"]
    flowers = ours([45.0, 45.5, 46.0], backbone="vit_s32", dataset="flowers102_relvit")
    assert row([flowers], "relvit.r.t2.flowers102.vit_s32.relvit")["comparable"]


def test_every_accuracy_of_the_table_has_its_row_and_every_layout_holds_it() -> None:
    document = against("relvit:2", [ours([90.2, 90.25, 90.3, 90.15, 90.25])], margin=0.5)
    assert len(document["rows"]) == 12
    for text in (markdown(of_published(document)), latex(of_published(document))):
        assert "90.23" in text and "reproduced" in text and "no cell of ours" in text and "nan" not in text.lower()

"""Our cells beside a paper's printed numbers: what may be compared, and what the difference says.

A printed mean with a deviation over runs is compared by Welch's test, at the worst over its
rounding and over ddof 0; a single printed number is one more draw (Crawford and Howell 1998).
Numbers of other epochs, recipes or settings are not compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from ...jobs.grid import fidelity
from ...jobs.grid.rules import VARIANT
from ..stats.difference import (
    ALPHA,
    Difference,
    against_one,
    equivalence,
    holm,
    seeds_for,
    welch_of_summaries,
)
from .published import SELECTION, Published, select, widest

SCHEMA_VERSION = 1
# What the papers' records call a recipe.
RECIPES = {
    "drloc_scratch": "drloc-scratch",
    "drloc_finetune": "drloc-finetune",
    "relvit_downstream_only": "relvit-joint",
    "relvit_downstream_only_variants": "relvit-joint",
    "relvit_pretrain_finetune": "relvit-finetune",
    "relvit_supervised_pretrain_finetune": "relvit-finetune",
    "deit": "deit",
    "cait": "cait",
    "resmlp": "resmlp",
    "patchconvnet_1k": "patchconvnet",
    "rsb_a2": "resnet50-a2",
    "deit3_1k": "deit3-1k",
}
# Fine-tuned at 224 pixels, the runs of these have the fine-tuning's recipe.
LOWRES = "lowres_finetune224"
CHAINED = ("pretrain_finetune", "finetune_res", LOWRES)
# CvT-13 as the DRLoc paper trained it has a name of its own; the thesis calls its DeiT III models
# ViT; Flowers in RelViT's protocol is another dataset.
BACKBONES = {
    "cvt_13": ("cvt_13_drloc", "cvt_13"),
    **{f"vit_{size}": (f"deit3_{size}",) for size in "tsbl"},
}
DATASETS = {
    ("relvit", "flowers102"): "flowers102_relvit",
    "inat18": "inat2018",
    "inat19": "inat2019",
}
# Further test sets are datasets of their own in the records.
SETS = {"imagenet_v2": ("imagenet1k", "v2"), "imagenet_real": ("imagenet1k", "real")}
_LOSSES = {"l1": "drloc", "signed": "drloc_signed", "ce": "drloc_ce", "reg": "drloc_reg"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A cell of a report, and how it was made."""

    cell: dict[str, Any]
    head: dict[str, Any]
    """The first of its chain that is not the supervised one."""
    recipe: dict[str, Any]
    first_recipe: dict[str, Any]
    """Of the chain's beginning."""
    chained: bool

    @property
    def method(self) -> str:
        params = self.head["params"]
        if self.head["name"] != "drloc":
            return str(self.head["name"])
        return "drloc_all" if params["blocks"] == "all" else _LOSSES[params["loss"]]


def of_cell(cell: dict[str, Any]) -> Ours:
    """Read a document of `analysis.table.report(…, with_specs=True)`."""
    heads = [spec["head"] for spec in cell["specs"]]
    head = next((head for head in heads if head["name"] != "supervised"), heads[0])
    return Ours(
        cell=cell,
        head=head,
        recipe=cell["specs"][0]["recipe"],
        first_recipe=cell["specs"][-1]["recipe"],
        chained=len(heads) > 1,
    )


def against(
    name: str, cells: Sequence[dict[str, Any]], *, alpha: float = ALPHA, margin: float | None = None
) -> dict[str, Any]:
    """Put each printed accuracy of a paper's table beside ours.

    Args:
        name: `drloc:4`.
        cells: a report's, with their descriptions.
        alpha: of the tests, adjusted for their number (Holm), and of the intervals.
        margin: in points; a difference within ± this counts as none. Without it nothing is ever
            reproduced.

    Raises:
        BadInput: there is no such paper.
        NothingMatched: it has no such table.
    """
    paper = name.partition(":")[0]
    rule = SELECTION.get(paper, "last")
    ours = [of_cell(_selected(cell, rule)) for cell in cells]
    rows = []
    for record in select(name):
        if record.metric != "top1":
            continue
        found = [one for one in ours if _is(one, record, paper)]
        rows += [_row(record, one, alpha) for one in found] or [_row(record, None, alpha)]
    adjusted = holm([row["p_worst"] for row in rows if row["comparable"]])
    for row, p in zip([row for row in rows if row["comparable"]], adjusted, strict=True):
        row["p_adjusted"] = p
        row["word"], row["detail"] = _word(row, p, alpha, margin)
    for row in rows:
        del row["_difference"]
    head = {
        "schema_version": SCHEMA_VERSION,
        "paper": name,
        "selection": rule,
        "alpha": alpha,
        "margin": margin,
    }
    return head | {"rows": rows}


def _selected(cell: dict[str, Any], rule: str) -> dict[str, Any]:
    """Return a cell scored as the paper scores its own, for this table alone.

    The last epoch stays beside it.
    """
    found = {**cell, "last": cell["mean"], "last_std": cell["std"]}
    if rule == "best" and cell["n"]:
        values = list(cell["best_values"].values())
        found |= {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else None}
    return found


def _is(one: Ours, record: Published, paper: str) -> bool:
    """Whether a cell is the record's backbone, dataset and method, in the record's variant."""
    backbone, params = one.cell["backbone"].partition("(")[0], one.head["params"]
    if backbone not in BACKBONES.get(record.backbone, (record.backbone,)):
        return False
    dataset, set_name = SETS.get(record.dataset, (record.dataset, "test"))
    dataset = DATASETS.get((paper, dataset), DATASETS.get(dataset, dataset))
    if (one.cell["dataset"], one.cell["set"], one.method) != (dataset, set_name, record.method):
        return False
    if one.chained != (record.protocol in CHAINED):
        return False
    sizes = {"train_res": one.first_recipe["image_size"], "test_res": one.recipe["image_size"]}
    if any(record.variant.get(name, size) != size for name, size in sizes.items()):
        return False
    if "change" in record.variant and record.variant["change"].replace(",", "") != one.cell[
        "axes"
    ].get(VARIANT):
        return False
    if record.ssl_tasks and sorted(params.get("tasks", ())) != sorted(record.ssl_tasks):
        return False
    wanted = {"lambda": "weight", "m": "pairs", "mlp_hidden": "width", "M": "mega"}
    given = {
        key: value for key, value in record.variant.items() if value is not None and key in wanted
    }
    if record.method == "supervised":
        return True
    return all(params.get(wanted[key]) == value for key, value in given.items())


def _row(record: Published, one: Ours | None, alpha: float) -> dict[str, Any]:
    cell = one.cell if one is not None else {}
    why = _why_not(record, one)
    found = Difference(n=0, n_baseline=0, why_not=why) if why else _difference(record, cell, alpha)
    return {
        "id": record.id,
        **{
            key: getattr(record, key)
            for key in ("table", "dataset", "backbone", "method", "epochs", "metric")
        },
        "variant": record.variant,
        "printed": record.mean,
        "printed_std": record.std,
        "printed_n": record.n_seeds,
        "doubtful": record.doubtful,
        "cell_id": cell.get("cell_id"),
        "ours": cell.get("mean"),
        "ours_std": cell.get("std"),
        "ours_n": cell.get("n", 0),
        "ours_last": cell.get("last"),
        "ours_last_std": cell.get("last_std"),
        "fidelity": cell.get("fidelity", {}),
        "comparable": not why,
        "difference": found.difference,
        "interval": [found.interval.low, found.interval.high] if found.interval else None,
        "p": found.p,
        "p_worst": None if why else _worst(record, cell, alpha),
        "p_adjusted": None,
        "word": "not comparable",
        "detail": why or found.why_not,
        "_difference": found,
    }


def _why_not(record: Published, one: Ours | None) -> str:
    """Return why a cell says nothing of a record, or nothing."""
    if one is None or not one.cell["n"]:
        return "our cell has no finished run" if one is not None else "no matching cell among ours"
    reasons = []
    lowres = record.protocol == LOWRES
    recipe = "deit3-finetune" if lowres else RECIPES.get(record.recipe or "")
    epochs = (one.first_recipe if lowres else one.recipe)["epochs"]
    if recipe is None:
        reasons.append(f"recipe {record.recipe or 'unknown'} is not in vtjobs' catalogue")
    elif one.cell["recipe"] != recipe:
        reasons.append(f"our recipe is {one.cell['recipe']}, the paper's is {recipe}")
    if record.epochs is not None and epochs != record.epochs:
        reasons.append(f"{epochs} epochs, the paper's {record.epochs}")
    changed = [
        setting.name
        for setting in fidelity.of_recipe(one.recipe, one.cell["recipe"])
        if setting.source == fidelity.CHANGED and setting.name not in _NO_DIFFERENCE
    ]
    # What an ablation changes is what its record says.
    reasons += [f"train.{name} was changed" for name in changed if "change" not in record.variant]
    return "; ".join(reasons)


# Epochs are told apart; the others decide how a step is computed, not what it is meant to be.
_NO_DIFFERENCE = (
    "epochs",
    "virtual_ranks",
    "precision",
    "tf32",
    "channels_last",
    "compile",
    "deterministic",
    "pipeline",
)


def _difference(record: Published, cell: dict[str, Any], alpha: float) -> Difference:
    return _test(cell, record.mean, record.std, record.n_seeds, alpha)


def _test(
    cell: dict[str, Any], mean: float, std: float | None, n: int | None, alpha: float
) -> Difference:
    own, ours = cell["std"], cell["n"]
    if own is not None and std is not None and (n or 0) > 1 and own + std > 0:
        return welch_of_summaries(cell["mean"], own, ours, mean, std, n or 0, alpha=alpha)
    if own is not None and std is None:
        return against_one(cell["mean"], own, ours, mean, alpha=alpha)
    difference = cell["mean"] - mean
    unknown = std is not None and n is None
    too_few = "needs two runs of ours that differ"
    why = "the paper's number of runs is unknown" if unknown else too_few
    return Difference(n=ours, n_baseline=n or 0, difference=difference, why_not=why)


def _worst(record: Published, cell: dict[str, Any], alpha: float) -> float | None:
    """Return the largest p that rounding of the printed numbers, and a deviation with ddof 0, leave
    open.
    """
    gap = cell["mean"] - record.mean
    nearest = cell["mean"] - math.copysign(max(0.0, abs(gap) - record.half_unit), gap)
    return _test(cell, nearest, widest(record), record.n_seeds, alpha).p


def _word(
    row: dict[str, Any], p: float | None, alpha: float, margin: float | None
) -> tuple[str, str]:
    found: Difference = row["_difference"]
    if p is None:
        return "inconclusive", found.why_not
    tie = equivalence(found, margin) if margin is not None else None
    equal = tie is not None and tie <= alpha
    if p <= alpha:
        shift = "reproduced with a shift", "significant, but within the margin"
        return shift if equal else ("differs", "")
    if equal:
        return "reproduced", ""
    if margin is None:
        return "inconclusive", "no margin was given"
    needed = seeds_for(margin / found.std, alpha=alpha) if found.std else None
    more = (
        f"needs about {needed - found.n} more seeds"
        if needed is not None and needed > found.n
        else "the printed number is too uncertain"
    )
    return "inconclusive", more

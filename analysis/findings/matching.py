"""Which of our cells is the one that a paper's record is about. Pure."""

from dataclasses import dataclass
from statistics import fmean, stdev

from ...jobs.grid.rules import VARIANT
from ...jobs.run.settings import DatasetSettings, HeadSettings, RecipeSettings
from ...jobs.run.spec import BASELINE
from .cell import Cell
from .published import Published

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
    "resnet50": ("resnet50_drloc", "resnet50"),
    "vit_b16": ("vit_b16_drloc", "vit_b16"),
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

    cell: Cell
    mean: float | None
    """Scored as the paper scores its own."""
    std: float | None
    head: HeadSettings
    """The first of its chain that is not the supervised one."""
    recipe: RecipeSettings
    dataset: DatasetSettings
    first_recipe: RecipeSettings
    """Of the chain's beginning."""
    chained: bool
    rule: str
    """best, or last: which epoch counts."""

    @property
    def method(self) -> str:
        params = self.head.params
        if self.head.name != "drloc":
            return self.head.name
        return "drloc_all" if self.head.shared.blocks == "all" else _LOSSES[str(params["loss"])]


def of_cell(cell: Cell, rule: str) -> Ours:
    """Read a cell of a report that was made with specs.

    Args:
        cell: of the report.
        rule: `best`: it is scored by each run's best epoch on the reported set, as the paper's own
            numbers are, for this table alone; else as in the report.
    """
    assert cell.specs is not None, "the report was made without specs"
    heads = [spec.head for spec in cell.specs]
    mean, std = cell.mean, cell.std
    if rule == "best" and cell.n:
        values = list((cell.best_values or {}).values())
        mean, std = fmean(values), stdev(values) if len(values) > 1 else None
    return Ours(
        cell=cell,
        mean=mean,
        std=std,
        head=next((head for head in heads if head.name != BASELINE), heads[0]),
        recipe=cell.specs[0].recipe,
        dataset=cell.specs[0].dataset,
        first_recipe=cell.specs[-1].recipe,
        chained=len(heads) > 1,
        rule=rule,
    )


def is_recorded(one: Ours, record: Published, paper: str) -> bool:
    """Whether a cell is the record's backbone, dataset and method, in the record's variant."""
    backbone, params = one.cell.backbone.partition("(")[0], one.head.params
    if backbone not in BACKBONES.get(record.backbone, (record.backbone,)):
        return False
    dataset, set_name = SETS.get(record.dataset, (record.dataset, "test"))
    dataset = DATASETS.get((paper, dataset), DATASETS.get(dataset, dataset))
    if (one.cell.dataset, one.cell.set, one.method) != (dataset, set_name, record.method):
        return False
    if one.chained != (record.protocol in CHAINED):
        return False
    sizes = {"train_res": one.first_recipe.image_size, "test_res": one.recipe.image_size}
    if any(record.variant.get(name, size) != size for name, size in sizes.items()):
        return False
    if "change" in record.variant and record.variant["change"].replace(
        ",", ""
    ) != one.cell.axes.get(VARIANT):
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

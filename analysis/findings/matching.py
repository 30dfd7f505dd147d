"""Which cells a paper's record is about, by what the record says of them. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...jobs.grid.policy_names import THREE, TRIVIAL, drawn_from
from ...jobs.run.settings import CellSettings, HeadSettings
from ...jobs.run.spec import BASELINE, VARIANT, Axes
from ...jobs.values import Value
from . import branches, by_neighbours
from .published import Published

# Fine-tuned at 224 pixels, the runs of these have the fine-tuning's recipe.
LOWRES = "lowres_finetune224"
FINER = "finetune_res"
CHAINED = ("pretrain_finetune", "pretrain_then_standard_finetune", "transfer", FINER, LOWRES)
# CvT-13 as the DRLoc paper trained it has a name of its own, and so has ResNet-50 for 32 pixels;
# the thesis calls its DeiT III models ViT; Flowers in RelViT's protocol is another dataset.
BACKBONES = {
    "cvt_13": ("cvt_13_drloc", "cvt_13"),
    "resnet50": ("resnet50_drloc", "resnet50", "resnet50_cifar"),
    "vit_b16": ("vit_b16_drloc", "vit_b16"),
    "regnety_16gf": ("regnety_160",),
    "regnety_4gf": ("regnety_040",),
    "regnety_8gf": ("regnety_080",),
    "resnext50_32x4": ("resnext50_32x4d",),
    "resnext50d_32x4": ("resnext50d_32x4d",),
    # By timm's names: the catalogue has none for them.
    "pit_s": ("pit_s_224",),
    "pit_b": ("pit_b_224",),
    "tnt_s": ("tnt_s_patch16_224",),
    "tnt_b": ("tnt_b_patch16_224",),
    "convit_s": ("convit_small",),
    "convit_b": ("convit_base",),
    "swin_s": ("swin_small_patch4_window7_224",),
    "swin_b": ("swin_base_patch4_window7_224",),
    "cait_b12": ("cait_m36_384",),
    "cait_s36_path": ("deit_s", branches.BACKBONE, "cait_s36"),
    **{f"vit_{size}": (f"deit3_{size}",) for size in ("t", "s", "b", "l", "h", "h52", "h26x2")},
}
DATASETS = {"inat18": "inat2018", "inat19": "inat2019", "coco": "coco2017"}
IN_PROTOCOL = {("relvit", "flowers102"): "flowers102_relvit"}
# Further test sets are datasets of their own in the records.
SETS = {"imagenet_v2": ("imagenet1k", "v2"), "imagenet_real": ("imagenet1k", "real")}
# A column that table 3.13 of the thesis alone has. Its methods are where the class token joins.
_DEPTHS = "depth_sa_ca"
# What DRLoc's tables 12 and 13 are scored on.
_SEGMENTED, _MULTI_SCALE = "drloc_ade20k", "test@scales0.5-0.75-1-1.25-1.5-1.75"
# What its tables 10 and 11 are of; Cascade Mask R-CNN is not there.
_DETECTED = "drloc_coco"
# With a token for it; such backbones' names end so.
TOKEN = "distilled"
# Scored by one of its tokens.
_TOKENS = {"distilled_class_token": "class", "distilled_dist_token": "distillation"}
# What RelViT's table 4 prints of a head's own tasks after pre-training -> our metric. The unit of
# its squared errors is not given: they are compared with nothing.
OF_TASKS = {"ssl_acc_sprel": "sprel_top1", "ssl_acc_abspos": "abspos_top1"}
_WHOLE = ("cait", "cait_distilled")
_LOSSES = {"l1": "drloc", "signed": "drloc_signed", "ce": "drloc_ce", "reg": "drloc_reg"}


class Made(Value, frozen=True, kw_only=True):
    """How a cell is made: its names, and the settings of its stages."""

    backbone: str
    """Its short name; settings in brackets do not count."""
    dataset: str
    recipe: str
    axes: Axes
    stages: Sequence[CellSettings]
    """Its own, then those before it."""

    @property
    def head(self) -> HeadSettings:
        """The first of its chain that is not the supervised one."""
        heads = [stage.head for stage in self.stages]
        return next((head for head in heads if head.name != BASELINE), heads[0])

    @property
    def method(self) -> str:
        """What the papers' records call its head."""
        head = self.head
        if (grafit := head.grafit) is not None:
            return by_neighbours.method_of_head(grafit)
        if (distillation := head.distillation) is not None:
            # With a token for it, it is the thesis' own method.
            return TOKEN if self._has_token else f"distilled_{distillation.kind}"
        if head.name != "drloc":
            return head.name
        return "drloc_all" if head.shared.blocks != "last" else _LOSSES[str(head.params["loss"])]

    @property
    def _has_token(self) -> bool:
        return self.backbone.partition("(")[0].endswith(f"_{TOKEN}")


class Reading(NamedTuple):
    """Where a score stands in the ledger."""

    set: str
    metric: str


def reading_of(record: Published) -> Reading | None:
    """Return what of ours a record's number is compared with; None: vtjobs has no such score."""
    if by_neighbours.is_by_neighbours(record):
        found = by_neighbours.trained(record, DATASETS.get(record.dataset, record.dataset))
        return Reading(found.set, found.metric)
    if record.recipe == _SEGMENTED:
        return Reading(_MULTI_SCALE, record.metric)
    if record.recipe == _DETECTED:
        return Reading("test", record.metric)
    if record.metric in OF_TASKS and not record.variant:
        return Reading("test", OF_TASKS[record.metric])
    if record.metric != "top1":
        return None
    set_name = SETS.get(record.dataset, (record.dataset, "test"))[1]
    return Reading(f"{set_name}{_how_scored(record)}", "top1")


def _how_scored(record: Published) -> str:
    """Return what a set's name ends with where runs are not scored as in training."""
    if (token := _TOKENS.get(record.method)) is not None:
        return f"@{token}-token"
    crop, size = record.variant.get("crop_ratio"), record.variant.get("scored_res")
    parts = [f"{size}px"] if size is not None else []
    # CaiT is trained to be scored on whole images; its transfer has a recipe of its own.
    if (record.recipe or "") in _WHOLE and crop not in (None, 1.0):
        parts.append(f"crop{crop:g}")
    return f"@{'-'.join(parts)}" if parts else ""


def is_recorded(one: Made, record: Published, paper: str) -> bool:
    """Whether a cell is the record's backbone, dataset and method, in the record's variant."""
    return (
        one.backbone.partition("(")[0] in _backbones(record)
        and (one.dataset, one.method) == (_dataset(record, paper), _method(record))
        and (len(one.stages) > 1) == is_chained(record)
        and _has_sizes(one, record)
        and _has_variant(one, record)
    )


def is_chained(record: Published) -> bool:
    """Whether a record's number is of runs that begin with another stage."""
    is_of_tasks = record.metric in OF_TASKS
    return record.method == branches.FIXED or (record.protocol in CHAINED and not is_of_tasks)


def _backbones(record: Published) -> tuple[str, ...]:
    """Return the short names of what the record's backbone may be."""
    if record.method in branches.METHODS:
        return (branches.BACKBONE,)
    if _DEPTHS in record.variant:
        return ("deit_s", "deit_s_late")
    if record.variant.get("pool") == "attention":
        return (f"{record.backbone}_attention",)
    if _method(record) == TOKEN:
        return (f"{record.backbone}_{TOKEN}",)
    return BACKBONES.get(record.backbone, (record.backbone,))


def _method(record: Published) -> str:
    if _DEPTHS in record.variant:
        return BASELINE
    if record.method in branches.METHODS:
        return BASELINE
    if record.method in _TOKENS:
        return TOKEN
    if record.recipe in (by_neighbours.RECIPE, by_neighbours.TRANSFER):
        return by_neighbours.method_of_record(record)
    return record.method


def _dataset(record: Published, paper: str) -> str:
    if by_neighbours.is_by_neighbours(record):
        return by_neighbours.trained(record, DATASETS.get(record.dataset, record.dataset)).dataset
    dataset = SETS.get(record.dataset, (record.dataset, "test"))[0]
    # What a paper cites was not trained in its protocol.
    if not record.cited and (paper, dataset) in IN_PROTOCOL:
        return IN_PROTOCOL[paper, dataset]
    return DATASETS.get(dataset, dataset)


def _has_sizes(one: Made, record: Published) -> bool:
    sizes = {
        "train_res": one.stages[-1].recipe.image_size,
        "test_res": one.stages[0].recipe.image_size,
    }
    return all(record.variant.get(name, size) == size for name, size in sizes.items())


def _loss(one: Made) -> str:
    return {"cross_entropy": "ce"}.get(one.stages[0].recipe.loss, one.stages[0].recipe.loss)


def _layerscale(one: Made) -> bool:
    return one.stages[0].backbone.args.get("init_values") is not None


def _augment(one: Made) -> str:
    policy = one.stages[0].recipe.auto_augment or "none"
    if policy.startswith("3a") and drawn_from(policy) in (frozenset(), {*THREE.values()}):
        return "three_augment"
    names = {"original": "auto_augment", TRIVIAL: "trivial_augment"}
    return names.get(policy, "rand_augment" if policy.startswith("rand-") else policy)


def _jitter(one: Made) -> float:
    return one.stages[0].recipe.color_jitter


def _draws(operation: str) -> Callable[[Made], bool]:
    """Return what tells whether a 3-Augment draws from an operation."""

    def read(one: Made) -> bool:
        policy = one.stages[0].recipe.auto_augment or ""
        drawn = drawn_from(policy) or THREE.values()
        return policy.startswith("3a") and THREE[operation] in drawn

    return read


def _heads(one: Made) -> int | None:
    return one.stages[0].backbone.args.get("num_heads")


def _class_at(one: Made) -> int | None:
    """Return the block before which the class token joins; None of a model without one."""
    args = one.stages[0].backbone.args
    if not one.backbone.startswith("deit_s_late"):
        return 0 if args.get("class_token", True) else None
    at: int = args["class_at"] if args.get("class_at") is not None else args.get("depth", 12)
    return at


def _depths(one: Made) -> str:
    """Return blocks of self-attention and of class-attention, as table 3.13 writes them."""
    args = one.stages[0].backbone.args
    late = args.get("class_depth", 2) if one.backbone.startswith("deit_s_late") else 0
    return f"{args.get('depth', 12)}+{late}"


def _norm(one: Made) -> str:
    # Of PatchConvNet, of which alone it is recorded.
    return str(one.stages[0].backbone.args.get("norm", "layernorm"))


def _classifier(one: Made) -> str:
    return {"linear": "fc"}.get(one.stages[0].recipe.classifier, one.stages[0].recipe.classifier)


# Parts of a table whose rows are models.
_MODELS = ("Baseline models", "Patch size")
# What the records call a setting -> how a cell has it.
_READ: Mapping[str, Callable[[Made], Any]] = {
    "loss": _loss,
    "layerscale": _layerscale,
    "augment": _augment,
    "color_jitter": _jitter,
    **{operation: _draws(operation) for operation in THREE},
    "heads": _heads,
    "cls_at": _class_at,
    _DEPTHS: _depths,
    "norm": _norm,
    "head": _classifier,
    "step": lambda one: branches.step(one.backbone, one.stages[0].backbone.args),
    "detector": lambda one: "mask_rcnn",
}


def _as_name(change: str) -> str:
    """Return a printed change as a variant may be called, which has no such marks."""
    return re.sub("[,:]", "", change).replace("->", "to").replace("\N{MULTIPLICATION SIGN}", "x")


def _has_variant(one: Made, record: Published) -> bool:
    if "change" in record.variant:
        # Some changes are another model, which the record's backbone names.
        is_model = record.variant.get("block") in _MODELS
        change = None if is_model else _as_name(record.variant["change"])
        if change != one.axes.get(VARIANT):
            return False
    # Of the ablation the loss is part of the method.
    is_told = record.method == by_neighbours.ABLATION
    known = {key: read(one) for key, read in _READ.items() if key in record.variant and not is_told}
    if any(record.variant[key] != value for key, value in known.items()):
        return False
    params = one.head.params
    if record.method in branches.METHODS:
        recipe, args = one.stages[0].recipe, one.stages[0].backbone.args
        is_fixed = branches.are_factors(recipe.frozen) and branches.are_factors(recipe.init_only)
        return is_fixed == (record.method == branches.FIXED) and branches.is_of(args, record)
    if record.ssl_tasks and sorted(params.get("tasks", ())) != sorted(record.ssl_tasks):
        return False
    if record.method == BASELINE:
        return True
    named = {
        "lambda": "weight",
        "lambda_inst": "instance_weight",
        "m": "pairs",
        "mlp_hidden": "width",
        "M": "mega",
    }
    return all(
        # Without mega-patches, M is 0.
        (params.get(named[key]) or 0) == value
        for key, value in record.variant.items()
        if key in named and value is not None
    )

"""The parameters of the auxiliary heads: what a grid may say about each, and what the papers and their code say.

A preset, `fidelity`, fills what a grid leaves open: `paper` follows the text, `code` the program that was published
with it. Where the text says nothing both take the program's value (`SILENT`).
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

Weight = Annotated[float, Field(ge=0)]
Fidelity = Literal["paper", "code"]


class Head(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Supervised(Head):
    """Nothing beside the classifier: the baseline."""


class DRLoc(Head):
    """Dense relative localization (Liu et al. 2021, section 4, supplementary B)."""

    fidelity: Fidelity = Field("paper", description="what the open parameters follow: the text, or its published code")
    weight: Weight | None = Field(None, description="λ of the total loss; null: the paper's value for this backbone")
    weight_schedule: Literal["constant", "code"] | None = Field(
        None, description="λ over the epochs; code: 20 epochs up from 0, then down to 0 in a straight line"
    )
    loss: Literal["l1", "signed", "ce", "reg"] = Field("l1", description="eq. 2, eq. 3, eq. 5, eq. 6")
    blocks: Literal["last", "all"] = Field("last", description="all: every block with an MLP of its own, eq. 7")
    pairs: int = Field(64, ge=1, le=65_536, description="m, token pairs drawn per image and step")
    width: int = Field(512, ge=1, le=65_536, description="hidden width of the three-layer MLP")
    grid: int = Field(7, ge=2, description="side of the pooled grid")
    pooling: Literal["window", "overlapping", "none"] | None = Field(
        None, description="of finer grids: whole windows, or 3×3 with stride 2 and padding 1 as in the code"
    )
    offsets: Literal["relative", "cells"] | None = Field(None, description="for l1, signed: in grid sides, or in cells")
    classes: Literal["wide", "tight"] | None = Field(None, description="for ce, reg: 2k + 1 of them, or 2k - 1")
    extra_layer: bool | None = Field(None, description="for ce, reg: a linear layer before the two branches")
    alpha: Weight | None = Field(None, description="for reg: weight of log σ, eq. 6")
    tokens: Literal["before_norm", "after_norm"] | None = Field(
        None, description="relative to the backbone's last norm"
    )
    init: Literal["truncated_normal", "torch"] | None = Field(None, description="of the MLP's weights")


Task = Literal["sprel", "dist", "ang", "abspos"]


def _default_tasks() -> list[Task]:
    return ["sprel", "abspos"]


class RelViT(Head):
    """Relations between all patches (Camporese et al. 2022), with the labels or, before them, without."""

    fidelity: Fidelity = Field("paper", description="what the open parameters follow: the text, or its published code")
    tasks: list[Task] = Field(
        default_factory=_default_tasks,
        min_length=1,
        description="any of sprel (eq. 10), dist (12), ang (13), abspos (11)",
    )
    weight: Weight = Field(1.0, description="of the tasks' summed loss")
    rank: Literal["full", "low"] | None = Field(
        None, description="of the score's matrix: eq. 8's own, or queries and keys of D/9 (sprel) or D as in the code"
    )
    pooling: Literal["none", "overlapping"] | None = Field(
        None, description="of a grid finer than 7 a side: 3×3 with stride 2 and padding 1, as the code does for T2T"
    )
    labels: bool = Field(True, description="false: pre-training, without classifier and labels")
    positions: bool = Field(True, description="false: without positional embedding, which fine-tuning starts anew")
    shuffle: bool = Field(False, description="shuffle the patches of each image, and the targets with them")
    mega: int | None = Field(None, ge=2, description="M, mega-patches a side (section 3.2.1)")
    mega_cuts: Literal["apart", "shared"] | None = Field(None, description="cuts of the two axes: drawn apart, or once")
    patch_augment: bool = Field(False, description="crop, colour and grey-scale of each patch by itself (section 4.1)")
    patch_clamp: bool | None = Field(None, description="whether colours are changed after normalisation and clamped")

    @field_validator("tasks")
    @classmethod
    def _each_once(cls, tasks: list[Task]) -> list[Task]:
        """Put the tasks in one order: their order and a repetition decide nothing."""
        return [task for task in get_args(Task) if task in tasks]


class Distill(Head):
    """What a teacher says of the same images, beside the labels (Touvron et al. 2021, DeiT; thesis, section 3.3).

    A backbone with a distillation token learns the teacher's answers from that, any other one from its classifier.
    """

    fidelity: Fidelity = Field("paper", description="what the open parameters follow: the text, or its published code")
    teacher: str | dict[str, Any] | None = Field(
        None, description="an earlier stage of the grid, or a timm model with its weights: {MODEL: {weights: FILE}}"
    )
    kind: Literal["hard", "soft"] = Field("hard", description="the teacher's decision, or its whole distribution")
    weight: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="λ, the teacher's share of the loss; the labels have the rest"
    )
    temperature: Annotated[float, Field(gt=0)] | None = Field(None, description="τ, for soft")
    mean_over: Literal["images", "elements"] | None = Field(
        None, description="for soft: of the divergence, elements being images and classes as in the code"
    )
    fusion: Literal["softmax", "logits"] | None = Field(
        None, description="what is added up at test time where the backbone has a distillation token"
    )


HEADS: dict[str, type[Head]] = {"supervised": Supervised, "drloc": DRLoc, "relvit": RelViT, "distill": Distill}
# Heads that need a grid of tokens with at least two rows and two columns.
SPATIAL = frozenset(("drloc", "relvit"))

# What each preset says of the parameters that a grid may leave open.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "drloc": {
        "paper": {
            "weight_schedule": "constant",
            "pooling": "window",
            "offsets": "relative",
            "classes": "wide",
            "extra_layer": False,
            "alpha": 1e-3,
            "tokens": "after_norm",
            "init": "torch",
        },
        # The code weighs log σ², twice log σ.
        "code": {
            "weight_schedule": "code",
            "pooling": "overlapping",
            "offsets": "cells",
            "classes": "tight",
            "extra_layer": True,
            "alpha": 2e-3,
            "tokens": "after_norm",
            "init": "torch",
        },
    },
    "relvit": {
        "paper": {"rank": "full", "pooling": "none", "mega_cuts": "apart", "patch_clamp": False},
        "code": {"rank": "low", "pooling": "none", "mega_cuts": "shared", "patch_clamp": True},
    },
    "distill": {
        "paper": {"temperature": 3.0, "mean_over": "images", "fusion": "softmax"},
        "code": {"temperature": 1.0, "mean_over": "elements", "fusion": "logits"},
    },
}
# Of which the papers say nothing, so that `paper` too takes the published code's value.
SILENT: dict[str, frozenset[str]] = {
    "drloc": frozenset(("tokens", "init")),
    "relvit": frozenset(("pooling",)),
    "distill": frozenset(),
}


# The teacher's share of the loss, by fidelity and kind.
TEACHERS_SHARE = {"paper": {"hard": 0.5, "soft": 0.1}, "code": {"hard": 0.5, "soft": 0.5}}


def preset(
    name: str, fidelity: Fidelity, backbone: dict[str, Any], params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a preset says of a head's open parameters beside a backbone.

    Args:
        name: of the head.
        fidelity: of the preset.
        backbone: the catalogue's entry of the backbone, whose own values come first.
        params: what the grid says of the head; some values depend on others.
    """
    own = backbone.get(name, {})
    mine = {key: value for key, value in own.items() if key not in ("paper", "code")}
    if name == "distill":
        mine["weight"] = TEACHERS_SHARE[fidelity][(params or {}).get("kind", "hard")]
    return {**PRESETS.get(name, {}).get(fidelity, {}), **mine, **own.get(fidelity, {})}

"""The parameters of the auxiliary heads.

What a grid may say about each, and what the papers and their code say.

A preset, `fidelity`, fills what a grid leaves open: `paper` follows the text, `code` the program
that was published with it. Where the text says nothing both take the program's value (`silent`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..values import Value, field

Weight = Annotated[float, Field(ge=0)]
Fidelity = Literal["paper", "code"]


class Head(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Supervised(Head):
    """No auxiliary head: the baseline."""


class DRLoc(Head):
    """Dense relative localization (Liu et al. 2021, section 4, supplementary B)."""

    fidelity: Fidelity = Field(
        "paper",
        description="preset for unset parameters: paper (the text) or code (the published code)",
    )
    weight: Weight | None = Field(
        None,
        description="λ, weight of the head's loss; null: the paper's value for this backbone",
    )
    weight_schedule: Literal["constant", "code"] | None = Field(
        None,
        description="λ over the epochs; code: linear from 0 over 20 epochs, then linear to 0",
    )
    loss: Literal["l1", "signed", "ce", "reg"] = Field(
        "l1",
        description="loss: l1 (eq. 2), signed (eq. 3), ce (eq. 5) or reg (eq. 6)",
    )
    blocks: Literal["last", "all", "stages"] = Field(
        "last",
        description=(
            "blocks whose tokens are used; all: every block, each with its own MLP (eq. 7); "
            "stages: the end of each of Swin's stages, as in the code"
        ),
    )
    pairs: int = Field(64, ge=1, le=65_536, description="m, token pairs per image and step")
    width: int = Field(512, ge=1, le=65_536, description="hidden width of the three-layer MLP")
    grid: int = Field(7, ge=2, description="side of the pooled grid in tokens")
    pooling: Literal["window", "overlapping", "none"] | None = Field(
        None,
        description=(
            "average pooling of grids finer than `grid`: window (whole windows), "
            "overlapping (3×3, stride 2, padding 1, as in the code) or none"
        ),
    )
    offsets: Literal["relative", "cells", "shifted"] | None = Field(
        None,
        description=(
            "unit of the offsets, for l1 and signed: relative (sides of the grid), cells, or "
            "shifted (cells counted from the smallest offset, 0 to 2k - 2; for signed)"
        ),
    )
    classes: Literal["wide", "tight", "fixed"] | None = Field(
        None,
        description=(
            "number of classes, for ce and reg: wide (2k + 1), tight (2k - 1) or fixed (27 "
            "whatever the grid, as in the code for all backbones but Swin)"
        ),
    )
    extra_layer: bool | None = Field(
        None,
        description="additional linear layer before the two branches, for ce and reg",
    )
    alpha: Weight | None = Field(None, description="weight of log σ, for reg (eq. 6)")
    tokens: Literal["before_norm", "after_norm"] | None = Field(
        None,
        description="tokens before or after the backbone's last norm",
    )
    init: Literal["truncated_normal", "torch"] | None = Field(
        None,
        description="initialisation of the MLP's weights",
    )

    @model_validator(mode="after")
    def _is_signed(self) -> Self:
        if self.offsets == "shifted" and self.loss != "signed":
            raise ValueError("offsets: shifted needs loss: signed")
        return self


Task = Literal["sprel", "dist", "ang", "abspos"]


def _default_tasks() -> list[Task]:
    return ["sprel", "abspos"]


class RelViT(Head):
    """Relations between all patches (Camporese et al. 2022).

    They are trained together with the classifier, or alone in pre-training.
    """

    fidelity: Fidelity = Field(
        "paper",
        description="preset for unset parameters: paper (the text) or code (the published code)",
    )
    tasks: list[Task] = Field(
        default_factory=_default_tasks,
        min_length=1,
        description="any of sprel (eq. 10), dist (12), ang (13), abspos (11)",
    )
    weight: Weight = Field(1.0, description="weight of the tasks' summed loss")
    rank: Literal["full", "low"] | None = Field(
        None,
        description=(
            "rank of the score matrix: full (eq. 8), or low (queries and keys of width D/9 for "
            "sprel, D for dist and ang, as in the code)"
        ),
    )
    pooling: Literal["none", "overlapping"] | None = Field(
        None,
        description=(
            "average pooling of grids finer than 7×7: none, or overlapping "
            "(3×3, stride 2, padding 1, as in the code for T2T)"
        ),
    )
    labels: bool = Field(
        True,
        description="whether to train the classifier; false: pre-training without labels",
    )
    positions: bool = Field(
        True,
        description="whether to use positional embeddings; if not, fine-tuning starts new ones",
    )
    shuffle: bool = Field(
        False, description="shuffle the patches of each image, and the targets with them"
    )
    mega: int | None = Field(
        None,
        ge=2,
        description="M, mega-patches per side (section 3.2.1); null: none",
    )
    mega_cuts: Literal["apart", "shared"] | None = Field(
        None,
        description="random cuts of the two axes: apart (separate draws) or shared (one draw)",
    )
    patch_augment: bool = Field(
        False,
        description="crop, colour jitter and greyscale of each patch separately (section 4.1)",
    )
    patch_clamp: bool | None = Field(
        None,
        description="whether patch_augment works on normalised images and clamps them to 0…1",
    )

    @field_validator("tasks")
    @classmethod
    def _each_once(cls, tasks: list[Task]) -> list[Task]:
        """Put the tasks in one order: their order and a repetition decide nothing."""
        return [task for task in get_args(Task) if task in tasks]


class Distill(Head):
    """Distillation from a teacher (Touvron et al. 2021, DeiT; thesis, section 3.3).

    The teacher's predictions on the same images are learned in addition to the labels. A backbone
    with a distillation token learns them with that token, any other one with its classifier.
    """

    fidelity: Fidelity = Field(
        "paper",
        description="preset for unset parameters: paper (the text) or code (the published code)",
    )
    teacher: str | dict[str, Any] | None = Field(
        None,
        description="earlier stage, or timm model with weights: {MODEL: {weights: FILE}}",
    )
    kind: Literal["hard", "soft"] = Field(
        "hard",
        description="hard (the teacher's predicted class) or soft (its whole distribution)",
    )
    weight: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="λ, weight of the teacher's loss; the loss of the labels has weight 1 - λ",
    )
    temperature: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="temperature τ, for soft",
    )
    mean_over: Literal["images", "elements"] | None = Field(
        None,
        description="KL divergence, for soft: mean over images, or elements (images × classes)",
    )
    fusion: Literal["softmax", "logits"] | None = Field(
        None,
        description="outputs averaged at test time, for backbones with a distillation token",
    )


Loss = Literal["knn", "instance"]


class Grafit(Head):
    """Features finer than the labels (Grafit; Touvron 2022, thesis, chapter 2).

    The kNN loss replaces the classifier: an image's embedding is drawn to those of its class, which
    a memory holds. The instance loss draws the views of an image together.
    """

    losses: list[Loss] = Field(
        default_factory=lambda: list(get_args(Loss)),
        min_length=1,
        description="any of knn (eq. 2.3; SNCA+ has this one alone) and instance (eq. 2.1)",
    )
    weight: Weight = Field(1.0, description="weight of the summed losses")
    instance_weight: Weight = Field(
        1.0, description="λ, weight of the instance loss within the sum (Table 2.11)"
    )
    labels: bool = Field(
        False, description="whether to train the classifier as well; needs projector: none"
    )
    projector: Literal["mlp", "linear", "none"] = Field(
        "mlp",
        description="in place of the classifier: mlp (Grafit), linear (Grafit FC) or none",
    )
    dim: int = Field(
        256, ge=1, le=65_536, description="length of an embedding; 128 for projector: linear"
    )
    views: int = Field(
        4,
        ge=1,
        le=64,
        description="T, augmented views of an image; 1 without the instance loss",
    )
    temperature: Annotated[float, Field(gt=0)] = Field(
        0.05, description="σ of the kNN loss (section 2.4.3)"
    )
    target_decay: Annotated[float, Field(ge=0, le=1)] = Field(
        0.996,
        description="τ of the target network; the thesis gives none, this is BYOL's",
    )

    @model_validator(mode="before")
    @classmethod
    def _dependent_defaults(cls, given: Any) -> Any:
        """Fill in what depends on other parameters."""
        if not isinstance(given, dict):
            return given
        losses = given.get("losses")
        open_values: dict[str, Any] = {}
        if isinstance(losses, list) and "instance" not in losses:
            open_values["views"] = 1
        if given.get("projector") == "linear":
            # What the thesis counts for ResNet-50 in Table 2.7 is 128 for `linear` and 256 after a
            # hidden layer of 4096 for `mlp`.
            open_values["dim"] = 128
        return {**open_values, **given}

    @field_validator("losses")
    @classmethod
    def _each_once(cls, losses: list[Loss]) -> list[Loss]:
        """Put the losses in one order: their order and a repetition decide nothing."""
        return [loss for loss in get_args(Loss) if loss in losses]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.labels and self.projector != "none":
            raise ValueError("labels: true needs projector: none, which leaves the classifier")
        if "instance" in self.losses and self.views < 2:
            raise ValueError("the instance loss needs at least two views")
        if "instance" not in self.losses and self.views > 1:
            raise ValueError("only the instance loss uses more than one view")
        if self.losses == ["instance"] and not (self.instance_weight or self.labels):
            raise ValueError("the instance loss alone, with instance_weight 0, trains nothing")
        self._require_use()
        return self

    def _require_use(self) -> None:
        """Refuse what has no effect: it would make other runs of the same training."""
        uses: dict[str, tuple[bool, str]] = {
            "instance_weight": ("instance" in self.losses, "the instance loss"),
            "target_decay": ("instance" in self.losses, "the instance loss"),
            "temperature": ("knn" in self.losses, "the kNN loss"),
            "dim": (self.projector != "none", "a projector"),
        }
        for name, (is_used, by) in uses.items():
            if name in self.model_fields_set and not is_used:
                raise ValueError(f"only {by} uses {name}")


class BuiltIn(Value, frozen=True, kw_only=True):
    """All that is known of a built-in head outside the ranks: one entry of `HEADS`."""

    model: type[Head]
    """Its parameters, checked when a grid is read."""
    module: str | None = None
    """The module of `workers/heads` whose `build` makes it; None: no module is trained."""
    is_spatial: bool = False
    """Whether it needs a grid of tokens with at least two rows and two columns."""
    is_on_features: bool = False
    """Whether it learns from the features of whole images, and not from a grid of tokens."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What `paper` and `code` say of the parameters that a grid may leave open."""
    chosen: frozenset[str] = frozenset()
    """Parameters whose default is vtjobs' own choice: nothing was published."""
    silent: frozenset[str] = frozenset()
    """Parameters that the paper does not mention, so that `paper` takes the code's value."""


HEADS: dict[str, BuiltIn] = {
    "supervised": BuiltIn(model=Supervised),
    "drloc": BuiltIn(
        model=DRLoc,
        module="drloc",
        is_spatial=True,
        presets={
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
                "classes": "fixed",
                "extra_layer": True,
                "alpha": 2e-3,
                "tokens": "after_norm",
                "init": "torch",
            },
        },
        silent=frozenset(("tokens", "init")),
    ),
    "relvit": BuiltIn(
        model=RelViT,
        module="relvit",
        is_spatial=True,
        presets={
            "paper": {
                "rank": "full",
                "pooling": "none",
                "mega_cuts": "apart",
                "patch_clamp": False,
            },
            "code": {"rank": "low", "pooling": "none", "mega_cuts": "shared", "patch_clamp": True},
        },
        silent=frozenset(("pooling",)),
    ),
    "grafit": BuiltIn(
        model=Grafit, module="grafit", is_on_features=True, chosen=frozenset(("target_decay",))
    ),
    "distill": BuiltIn(
        model=Distill,
        presets={
            "paper": {"temperature": 3.0, "mean_over": "images", "fusion": "softmax"},
            "code": {"temperature": 1.0, "mean_over": "elements", "fusion": "logits"},
        },
    ),
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
    given = params or {}
    mine = {key: value for key, value in own.items() if key not in ("paper", "code")}
    if name == "distill":
        mine["weight"] = TEACHERS_SHARE[fidelity][given.get("kind", "hard")]
    if (name, fidelity, given.get("loss")) == ("drloc", "code", "signed"):
        mine["offsets"] = "shifted"
    return {**HEADS[name].presets.get(fidelity, {}), **mine, **own.get(fidelity, {})}

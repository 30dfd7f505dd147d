"""Recipes: every training hyper-parameter, by name in the catalogue and resolved into the run."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Recipe(BaseModel):
    """All that training needs besides data, backbone and head; every field decides the weights."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    fidelity: Literal["paper", "code"] = Field("paper", description="the source's own text, or its published code")

    # Budget and batches
    epochs: int = Field(ge=1, le=100_000, description="passes over the training set")
    batch_size: int = Field(ge=1, description="images per optimizer step, over all ranks (global batch)")
    virtual_ranks: int = Field(1, ge=1, description="shares the global batch is split into; world sizes divide it")
    drop_last: bool = Field(False, description="drop the short last batch of an epoch")
    repeats: int = Field(
        1,
        ge=1,
        le=64,
        description="copies of an image, each augmented anew; an epoch sees 1/repeats of the images",
    )

    # Optimizer and schedule
    optimizer: str = Field("adamw", description="a timm optimizer")
    lr: Positive = Field(description="peak learning rate, after warm-up")
    weight_decay: NotNegative = 0.0
    decay_all: bool = Field(False, description="decay biases and one-dimensional parameters such as norms as well")
    momentum: Fraction = 0.9
    schedule: Literal["cosine", "quarter_cosine", "constant"] = Field(
        "cosine", description="quarter_cosine: stays high, falls late"
    )
    schedule_epochs: int | None = Field(None, ge=1, description="length of the schedule where it is not `epochs`")
    warmup_epochs: NotNegative = Field(0.0, description="linear warm-up; fractions of an epoch are fine")
    warmup_lr: NotNegative = Field(0.0, description="learning rate of the first warm-up step")
    min_lr: NotNegative = Field(0.0, description="learning rate that the cosine ends at")
    clip_grad: Positive | None = Field(None, description="clip the gradient's global norm")

    # Numerics
    precision: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="fp16 uses gradient scaling")
    tf32: bool = False
    channels_last: bool = False
    compile: bool = False
    deterministic: bool = Field(False, description="deterministic kernels on a GPU, where a resume is then exact")

    # Input
    image_size: int = Field(ge=4, le=4096, description="side of the square input, pixels")
    pipeline: Literal["tensor", "pil"] = Field("tensor", description="batches of tensors, or timm's PIL transforms")
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    crop: Literal["none", "pad", "resized", "simple"] = Field(
        "none", description="training crop: padded shift, resized crop, or shorter side to size and a square at random"
    )
    crop_padding: int = Field(4, ge=0, le=256, description="for crop: pad (zeros), simple (mirrored); pixels")
    crop_scale: tuple[Fraction, Fraction] = Field((0.08, 1.0), strict=False, description="for crop: resized")
    crop_ratio: tuple[Positive, Positive] = Field((0.75, 4 / 3), strict=False, description="for crop: resized")
    flip: Fraction = Field(0.0, description="probability of a horizontal flip")
    auto_augment: str | None = Field(
        None, description="timm's string, e.g. rand-m9-mstd0.5-inc1, or 3a for 3-Augment; needs pipeline: pil"
    )
    color_jitter: NotNegative = Field(0.0, description="needs pipeline: pil")
    erasing: Fraction = Field(0.0, description="probability of erasing a rectangle with noise")
    eval_crop_pct: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="centre crop at evaluation")

    # Loss and regularisation
    loss: Literal["cross_entropy", "bce"] = Field("cross_entropy", description="bce: a binary decision for each class")
    bce_threshold: Fraction | None = Field(None, description="for loss: bce; mixed targets above it count as 1")
    mixup: NotNegative = 0.0
    cutmix: NotNegative = 0.0
    mix_prob: Fraction = 1.0
    mix_switch_prob: Fraction = 0.5
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = Field(None, description="null: the backbone's own")
    drop_path: Annotated[float, Field(ge=0, lt=1)] | None = Field(None, description="null: the backbone's own")
    drop_path_rule: Literal["model", "uniform"] = Field(
        "model", description="stochastic depth's rate over the blocks: as the model has it, or the same for all"
    )
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    ema_warmup: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.batch_size % self.virtual_ranks:
            raise ValueError(f"batch_size {self.batch_size} is not divisible by virtual_ranks {self.virtual_ranks}")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs {self.warmup_epochs:g} must be less than epochs {self.epochs}")
        if self.schedule_epochs is not None and self.schedule_epochs < self.epochs:
            raise ValueError(f"schedule_epochs {self.schedule_epochs} must not be less than epochs {self.epochs}")
        if self.pipeline == "tensor" and (self.auto_augment or self.color_jitter):
            name = "auto_augment" if self.auto_augment else "color_jitter"
            raise ValueError(f"{name} needs `pipeline: pil`")
        if self.pipeline == "tensor" and self.crop == "simple":
            raise ValueError("crop: simple needs `pipeline: pil`")
        if self.color_jitter and self.auto_augment and "3a" not in self.auto_augment:
            raise ValueError("color_jitter goes with auto_augment 3a alone: timm leaves it out beside any other")
        if self.bce_threshold is not None and self.loss != "bce":
            raise ValueError("bce_threshold needs `loss: bce`")
        if self.crop_scale[0] > self.crop_scale[1] or self.crop_ratio[0] > self.crop_ratio[1]:
            raise ValueError("crop_scale and crop_ratio are [smallest, largest]")
        return self


def allowed_world_sizes(virtual_ranks: int) -> list[int]:
    """Return the numbers of real ranks that can carry these virtual ranks."""
    return [size for size in range(1, virtual_ranks + 1) if virtual_ranks % size == 0]


def held_out(dataset: dict[str, Any]) -> int:
    """Return how many of a run's training images are kept for the set val."""
    share: float = dataset.get("val", 0.0)
    return round(share * int(dataset["train"]))


def trained_on(dataset: dict[str, Any]) -> int:
    """Return the number of images that a run trains on."""
    return int(dataset["train"]) - held_out(dataset)


def steps_per_epoch(train_size: int, batch_size: int, *, drop_last: bool) -> int:
    """Return the optimizer steps of one epoch."""
    return train_size // batch_size if drop_last else -(-train_size // batch_size)

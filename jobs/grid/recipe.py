"""Recipes: every training hyper-parameter, by name in the catalogue and resolved into the run."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..documents import from_plain
from ..run.settings import Pipeline, RecipeSettings
from .policy_names import OF_PILLOW, policy_problem

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Contradiction = tuple[tuple[str, ...], bool, str]
"""Fields that may contradict each other, whether they do, and what to say then."""
Epoch = Annotated[int, Field(ge=1, le=100_000)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]


def proportional(lr: float, lr_per: int, batch_size: int) -> float:
    """Return a rate that grows with the batch: `lr` is for `lr_per` images."""
    # As a decimal number would be written: 0.4, not 0.4000000000000001.
    return float(f"{lr * batch_size / lr_per:.12g}")


class Recipe(BaseModel):
    """Training hyper-parameters as a user gives them; changing any of them gives a different run.

    A run stores them as `jobs/run/settings.RecipeSettings`, which has the same fields but `lr_per`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    fidelity: Literal["paper", "code"] = Field(
        "paper",
        description="preset: paper (values from the text) or code (values from the published code)",
    )

    # Budget and batches
    epochs: int = Field(ge=1, le=100_000, description="passes over the training set")
    batch_size: int = Field(
        ge=1,
        description="global batch size: images per optimizer step, over all ranks",
    )
    virtual_ranks: int = Field(
        1,
        ge=1,
        description="number of shares of the global batch; must be divisible by the world size",
    )
    drop_last: bool = Field(False, description="drop the short last batch of an epoch")
    repeats: int = Field(
        1,
        ge=1,
        le=64,
        description="repeated augmentation: copies per image; epochs see 1/repeats of the images",
    )
    sync_bn: bool = Field(
        False,
        description="BatchNorm normalises by the whole batch, not by a virtual rank's images",
    )

    # Optimizer and schedule
    optimizer: str = Field("adamw", description="name of a timm optimizer")
    lr: Positive = Field(description="peak learning rate, after warm-up")
    lr_per: int | None = Field(
        None,
        ge=1,
        description="batch size that lr is for: the rate is lr · batch_size / lr_per",
    )
    weight_decay: NotNegative = Field(
        0.0, description="weight decay, decoupled where the optimizer has it so"
    )
    decay_all: bool = Field(
        False,
        description="apply weight decay to biases and one-dimensional parameters (norms) as well",
    )
    momentum: Fraction = Field(0.9, description="momentum of the SGD optimizers")
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description=(
            "learning rate of a layer as a fraction of the next one's, for fine-tuning; the "
            "classifier has the whole rate"
        ),
    )
    trainable: Literal["all", "attention", "classifier"] = Field(
        "all",
        description=(
            "what is trained: all, attention and classifier, or the classifier alone on fixed "
            "features (a linear probe)"
        ),
    )
    frozen: Names = Field(
        (),
        description=(
            "patterns of the names of the backbone's parameters that are not trained, such as "
            "`[patch_embed.*]`"
        ),
    )
    init_only: Names = Field(
        (),
        description=(
            "patterns of the names of the only parameters that are taken from the stage named by "
            "`init_from`; the others are drawn. Default: all are taken"
        ),
    )
    schedule: Literal["cosine", "quarter_cosine", "linear", "constant", "step"] = Field(
        "cosine",
        description="learning-rate schedule; quarter_cosine: stays high for long and falls late",
    )
    schedule_epochs: int | None = Field(
        None,
        ge=1,
        description="length of the schedule in epochs; default: `epochs`",
    )
    schedule_unit: Literal["step", "epoch"] = Field(
        "step",
        description="how often the learning rate changes: at every step, or once per epoch",
    )
    schedule_lag: int = Field(
        0,
        ge=0,
        le=1,
        description=(
            "units by which the learning rate is late; 1: as in programs that set it after the "
            "step or epoch"
        ),
    )
    decay_epochs: Epoch | Annotated[tuple[Epoch, ...], Field(min_length=1, strict=False)] = Field(
        30,
        description=(
            "epochs between the falls of schedule: step; or a list of those after which it falls, "
            "such as [8, 11]"
        ),
    )
    decay_rate: Fraction | None = Field(
        None,
        description="what is left of the rate after a fall of schedule: step; default: 0.1",
    )
    warmup_epochs: NotNegative = Field(
        0.0,
        description="length of the linear warm-up in epochs; may be fractional",
    )
    warmup_lr: NotNegative = Field(0.0, description="learning rate of the first warm-up step")
    min_lr: NotNegative = Field(
        0.0, description="final learning rate of the cosine schedules and of schedule: linear"
    )
    clip_grad: Positive | None = Field(
        None,
        description="maximum global gradient norm; null: no clipping",
    )

    # Numerics
    precision: Literal["fp32", "fp16", "bf16"] = Field(
        "fp32",
        description="numerical precision; fp16 uses gradient scaling",
    )
    tf32: bool = Field(False, description="TensorFloat-32 for matrix products and convolutions")
    channels_last: bool = Field(False, description="channels-last memory format")
    compile: bool = Field(False, description="compile the model with torch.compile")
    deterministic: bool = Field(
        False,
        description="deterministic GPU kernels, so that resuming on a GPU is exact",
    )

    # Input
    image_size: int = Field(ge=4, le=4096, description="side of the square input in pixels")
    pipeline: Pipeline = Field(
        "tensor",
        description=(
            "augmentation: tensor (in batches, on the GPU), pil (timm's transforms, per image) or"
            " hybrid (timm's crop per image, the rest on the GPU)"
        ),
    )
    interpolation: Literal["bilinear", "bicubic"] = Field(
        "bicubic", description="interpolation of every resize"
    )
    crop: Literal["none", "pad", "resized", "simple"] = Field(
        "none",
        description=(
            "training crop: none, pad (random shift after padding), resized (random resized crop) "
            "or simple (shorter side to size, then a random square)"
        ),
    )
    crop_padding: int = Field(
        4,
        ge=0,
        le=256,
        description="padding in pixels for crop: pad (zeros) and crop: simple (mirrored)",
    )
    crop_scale: tuple[Fraction, Fraction] = Field(
        (0.08, 1.0),
        strict=False,
        description="smallest and largest fraction of the area, for crop: resized",
    )
    crop_ratio: tuple[Positive, Positive] = Field(
        (0.75, 4 / 3),
        strict=False,
        description="smallest and largest aspect ratio (width / height), for crop: resized",
    )
    flip: Fraction = Field(0.0, description="probability of a horizontal flip")
    auto_augment: str | None = Field(
        None,
        description="timm policy, e.g. rand-m9-mstd0.5-inc1, or 3a (3-Augment); 3a-grayscale-blur"
        " leaves out solarize, the third of its operations",
    )
    color_jitter: NotNegative = Field(
        0.0,
        description="strength of colour jitter; goes with no auto_augment but 3a",
    )
    erasing: Fraction = Field(0.0, description="probability of random erasing (noise rectangle)")
    eval_crop_pct: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="centre crop at evaluation, as a fraction of the shorter side",
    )
    rescale: tuple[Positive, Positive] | None = Field(
        None,
        strict=False,
        description=(
            "for datasets with masks or objects: smallest and largest factor of a training "
            "image's size, before the crop; null: 1"
        ),
    )
    longest_side: int | None = Field(
        None,
        ge=4,
        le=4096,
        description=(
            "for datasets with objects: an image's shorter side has image_size pixels, its longer "
            "one at most this many; null: the longer side has image_size pixels"
        ),
    )
    transform: str | None = Field(
        None,
        description=(
            'your own augmentation of training images, "file.py:Class", before all others; needs '
            "pipeline: pil or hybrid"
        ),
    )

    # Loss and regularisation
    loss: Literal["cross_entropy", "bce"] = Field(
        "cross_entropy",
        description=(
            "classification loss; bce: binary cross-entropy for each class; or your own, "
            '"file.py:function"'
        ),
    )
    bce_threshold: Fraction | None = Field(
        None,
        description="for loss: bce: targets above this count as 1, others as 0; null: no threshold",
    )
    mixup: NotNegative = Field(0.0, description="α of Mixup; 0: no Mixup")
    cutmix: NotNegative = Field(0.0, description="α of CutMix; 0: no CutMix")
    mix_prob: Fraction = Field(1.0, description="probability that a batch is mixed")
    mix_switch_prob: Fraction = Field(
        0.5, description="probability of CutMix rather than Mixup, where both are on"
    )
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="label smoothing ε"
    )
    classifier: Literal["linear", "mlp"] = Field(
        "linear",
        description="the backbone's last layer, or two with BatchNorm and ReLU between them",
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None,
        description="dropout rate; null: the backbone's default",
    )
    drop_path: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None,
        description="stochastic depth rate; null: the backbone's default",
    )
    drop_path_rule: Literal["model", "uniform"] = Field(
        "model",
        description=(
            "stochastic depth rate over the blocks: model (as the timm model defines it) "
            "or uniform (the same in every block)"
        ),
    )
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="decay of the moving average of the weights (EMA); null: no average"
    )
    ema_warmup: bool = Field(False, description="let the decay of the moving average rise from 0")
    decoder_width: int | None = Field(
        None,
        ge=8,
        le=4096,
        description=(
            "channels of what is put on the backbone: for datasets with masks UperNet's (default: "
            "512), for those with objects Mask R-CNN's (default: 256)"
        ),
    )

    @property
    def settings(self) -> RecipeSettings:
        """The recipe as a run stores it: its rate, without the lab's own functions."""
        values = self.model_dump(mode="json", exclude={"transform", "lr_per"})
        if self.lr_per is not None:
            values["lr"] = proportional(self.lr, self.lr_per, self.batch_size)
        return from_plain(values, RecipeSettings)

    @field_validator("auto_augment")
    @classmethod
    def _policy(cls, value: str | None) -> str | None:
        if value is not None and (problem := policy_problem(value)):
            raise ValueError(problem)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for fields, is_wrong, message in self._contradictions():
            if is_wrong:
                raise Inconsistent(message, fields)
        return self

    def _contradictions(self) -> Iterator[Contradiction]:
        yield from self._of_length()
        yield from self._of_images()
        yield (
            ("bce_threshold", "loss"),
            self.bce_threshold is not None and self.loss != "bce",
            "bce_threshold needs `loss: bce`",
        )
        yield (
            ("classifier", "trainable"),
            self.classifier == "mlp" and self.trainable == "classifier",
            "`classifier: mlp` does not go with `trainable: classifier`: on fixed features its"
            " BatchNorm would stay as it was drawn",
        )
        yield (
            ("sync_bn", "compile"),
            self.sync_bn and self.compile,
            "sync_bn does not go with `compile: true`: shares wait for each other within the model",
        )

    def _of_length(self) -> Iterator[Contradiction]:
        """Yield what batches and epochs may contradict."""
        yield (
            ("batch_size", "virtual_ranks"),
            self.batch_size % self.virtual_ranks != 0,
            f"batch_size {self.batch_size} is not divisible by virtual_ranks {self.virtual_ranks}",
        )
        yield (
            ("warmup_epochs", "epochs"),
            self.warmup_epochs >= self.epochs,
            f"warmup_epochs {self.warmup_epochs:g} must be less than epochs {self.epochs}",
        )
        yield (
            ("schedule_epochs", "epochs"),
            self.schedule_epochs is not None and self.schedule_epochs < self.epochs,
            f"schedule_epochs {self.schedule_epochs} must not be less than epochs {self.epochs}",
        )
        falls = self.decay_epochs
        yield (
            ("decay_epochs",),
            isinstance(falls, tuple) and list(falls) != sorted(set(falls)),
            "decay_epochs: expected a rising list",
        )

    def _of_images(self) -> Iterator[Contradiction]:
        """Yield what may contradict itself of how images are shown."""
        is_tensor = self.pipeline == "tensor"
        policy = self.auto_augment or ""
        either = "needs `pipeline: pil` or `hybrid`"
        pipelines = {
            "auto_augment": (
                f"auto_augment: {policy.split('-')[0]} needs `pipeline: pil`",
                self.pipeline != "pil" and policy.startswith(OF_PILLOW),
            ),
            "transform": (f"transform {either}", is_tensor and bool(self.transform)),
            "crop": (f"crop: simple {either}", is_tensor and self.crop == "simple"),
        }
        for name, (message, is_wrong) in pipelines.items():
            yield (name, "pipeline"), is_wrong, message
        yield (
            ("color_jitter", "auto_augment"),
            bool(self.color_jitter and policy) and "3a" not in policy,
            "color_jitter goes with auto_augment 3a alone: timm ignores it with any other policy",
        )
        yield (
            ("longest_side", "image_size"),
            self.longest_side is not None and self.longest_side < self.image_size,
            f"longest_side {self.longest_side} must not be less than image_size {self.image_size}",
        )
        ranges = {
            "crop_scale": self.crop_scale,
            "crop_ratio": self.crop_ratio,
            "rescale": self.rescale or (1.0, 1.0),
        }
        for name, (low, high) in ranges.items():
            yield (name,), low > high, f"{name} is [smallest, largest]"


class Inconsistent(ValueError):
    """Fields of a recipe that contradict each other: `fields`, the most likely mistake first."""

    def __init__(self, message: str, fields: tuple[str, ...]) -> None:
        super().__init__(message)
        self.fields = fields

"""A run's settings as its description stores them: complete, resolved, and typed.

What a user may write, with bounds and texts, stands in `jobs/grid`; here is what comes of it. A key
with a default is left out of the description where it has it: a key that is added later gets one,
and runs from before it keep their names.
"""

from typing import Any, Literal

from ..documents import Document, from_plain, to_plain
from ..values import field

# The teacher of a run that learns from an earlier stage's.
STAGE = "stage"

Task = Literal["classification", "segmentation", "detection"]
"""What labels are: an image's class, a mask of classes, or objects with classes, boxes, masks."""
CLASSIFICATION: Task = "classification"
Pipeline = Literal["tensor", "pil", "hybrid"]
"""What augments training images: the device, loader workers with Pillow, or both."""

Token = Literal["class", "distillation"]
"""Of a student with a token for what its teacher says: which of its two classifiers answers."""


class Weights(Document, frozen=True, kw_only=True):
    """The file that a backbone's weights are read from."""

    fingerprint: str
    """`sha256:` and the hash of the file."""
    allow_missing: tuple[str, ...] = ()
    """Patterns of the model's tensors that need not be in the file: they are drawn."""
    allow_unused: tuple[str, ...] = ()
    """Patterns of the file's tensors that the model need not have."""


class BackboneSettings(Document, frozen=True, kw_only=True):
    """The model of a run."""

    args: dict[str, Any]
    """Arguments of timm's `create_model`, or of a lab's own function."""
    model: str
    """timm's name, or that of a lab's own function or class."""
    weights: Weights | None
    """None: the weights are drawn."""
    source: str | None = None
    """The source of a lab's own backbone; None: timm makes it."""


class DatasetSettings(Document, frozen=True, kw_only=True):
    """The data of a run."""

    channels: int
    """Of an image."""
    classes: int
    """Number of classes."""
    fingerprint: str
    """Of a known dataset its name and version, of a folder a hash of its files."""
    mean: list[int | float]
    """For each channel, of pixels from 0 to 1."""
    name: str
    """Of a known dataset, `folder`, or the class of a lab's own."""
    std: list[int | float]
    """For each channel, of pixels from 0 to 1."""
    test: int
    """Number of test images."""
    train: int
    """Number of training images, those held out for `val` included."""
    val: float | None = None
    """Fraction of the training images that is held out; None: nothing is."""
    task: Task = "classification"
    """What its labels are for."""
    args: dict[str, Any] = field(default_factory=dict)
    """Arguments of a lab's own dataset."""
    source: str | None = None
    """The source of a lab's own dataset; None: vtjobs reads it."""

    @property
    def is_own(self) -> bool:
        """Whether the dataset is read by a lab's own class."""
        return self.source is not None

    @property
    def has_masks(self) -> bool:
        """Whether each pixel has a class."""
        return self.task == "segmentation"

    @property
    def has_objects(self) -> bool:
        """Whether the objects of an image have a class, a box and a mask each."""
        return self.task == "detection"

    @property
    def has_classes(self) -> bool:
        """Whether an image as a whole has a class."""
        return self.task == "classification"

    @property
    def held_out(self) -> int:
        """The number of training images that are kept for the set val."""
        return round((self.val or 0.0) * self.train)

    @property
    def trained_on(self) -> int:
        """The number of images that a run trains on."""
        return self.train - self.held_out


class SharedParameters(Document, frozen=True, kw_only=True):
    """Parameters of a head that other parts than the head itself read.

    A head that does not have one takes the default.
    """

    weight: float = 0.0
    """Of the head's loss, or of the teacher's."""
    weight_schedule: Literal["constant", "code"] = "constant"
    tokens: Literal["before_norm", "after_norm"] = "after_norm"
    blocks: Literal["last", "all", "stages"] = "last"
    labels: bool = True
    """Whether the classifier is trained."""
    positions: bool = True
    """Whether the backbone keeps its positional embedding."""
    mega: int | None = None
    """Mega-patches a side; None: none."""
    shuffle: bool = False
    """Whether the patches of each image are shuffled."""
    patch_augment: bool = False
    """Whether each patch is augmented by itself."""

    @property
    def changes_patches(self) -> bool:
        """Whether the head shuffles, augments or merges the patches of the input."""
        return self.shuffle or self.patch_augment or self.mega is not None


class DistillParameters(Document, frozen=True, kw_only=True):
    """Parameters of `distill`."""

    teacher: str | BackboneSettings
    """`stage`, or a model with its weights."""
    kind: Literal["hard", "soft"]
    weight: float
    temperature: float
    mean_over: Literal["images", "elements"]
    fusion: Literal["softmax", "logits"]


class GrafitParameters(Document, frozen=True, kw_only=True):
    """Parameters of `grafit`, which `jobs/grid/heads.Grafit` explains."""

    losses: list[Literal["knn", "instance"]]
    weight: float
    instance_weight: float
    labels: bool
    projector: Literal["mlp", "linear", "none"]
    dim: int
    views: int
    temperature: float
    target_decay: float

    @property
    def has_hidden_layer(self) -> bool:
        """Whether a hidden layer with BatchNorm is trained beside the backbone."""
        return self.projector == "mlp" or "instance" in self.losses


class HeadSettings(Document, frozen=True, kw_only=True):
    """The head of a run."""

    name: str
    """Of a built-in head, or of the class of a lab's own."""
    params: dict[str, Any]
    """Of the head; each head knows its own."""
    source: str | None = None
    """The source of a lab's own head; None: a built-in one."""

    @property
    def is_own(self) -> bool:
        """Whether the head is a lab's own."""
        return self.source is not None

    @property
    def shared(self) -> SharedParameters:
        """The parameters that other parts than the head read."""
        return from_plain(self.params, SharedParameters)

    @property
    def distillation(self) -> DistillParameters | None:
        """The parameters of `distill`; None of any other head."""
        if self.name != "distill" or self.is_own:
            return None
        return from_plain(self.params, DistillParameters)

    @property
    def learns_from_a_stage(self) -> bool:
        """Whether its teacher is a run of the grid, which is then no beginning of its own."""
        found = self.distillation
        return found is not None and found.teacher == STAGE

    @property
    def grafit(self) -> GrafitParameters | None:
        """The parameters of `grafit`; None of any other head."""
        if self.name != "grafit" or self.is_own:
            return None
        return from_plain(self.params, GrafitParameters)

    @property
    def views(self) -> int:
        """How many augmented views of each image it wants."""
        grafit = self.grafit
        # With weight 0 it is not there.
        return grafit.views if grafit is not None and grafit.weight else 1


class OwnFunction(Document, frozen=True, kw_only=True):
    """A lab's own loss, transform or metric."""

    name: str
    """Of the function, or of the class that makes it."""
    args: dict[str, Any]
    """Arguments from the grid."""
    source: str
    """Of its file."""


class RecipeSettings(Document, frozen=True, kw_only=True):
    """The training hyper-parameters of a run; `jobs/grid/recipe.py` says what each one means."""

    fidelity: Literal["paper", "code"]

    epochs: int
    batch_size: int
    virtual_ranks: int
    drop_last: bool
    repeats: int = 1
    sync_bn: bool = False

    optimizer: str
    lr: float
    weight_decay: float
    decay_all: bool
    momentum: float
    layer_decay: float | None = None
    trainable: Literal["all", "attention", "classifier"] = "all"
    frozen: tuple[str, ...] = ()
    init_only: tuple[str, ...] = ()
    schedule: Literal["cosine", "quarter_cosine", "linear", "constant", "step"]
    schedule_epochs: int | None
    schedule_unit: Literal["step", "epoch"] = "step"
    schedule_lag: int = 0
    decay_epochs: int | tuple[int, ...] = 30
    """Between two falls of the rate, or those after which it falls."""
    decay_rate: float | None = None
    """None: 0.1. A number would be written into every run: defaults are left out by identity."""
    warmup_epochs: float
    warmup_lr: float
    min_lr: float
    clip_grad: float | None

    precision: Literal["fp32", "fp16", "bf16"]
    tf32: bool
    channels_last: bool
    compile: bool
    deterministic: bool

    image_size: int
    pipeline: Pipeline
    interpolation: Literal["bilinear", "bicubic"]
    crop: Literal["none", "pad", "resized", "simple"]
    crop_padding: int
    crop_scale: tuple[float, float]
    crop_ratio: tuple[float, float]
    flip: float
    auto_augment: str | None
    color_jitter: float
    erasing: float
    eval_crop_pct: float
    rescale: tuple[float, float] | None = None
    longest_side: int | None = None
    transform: OwnFunction | None = None

    loss: Literal["cross_entropy", "bce", "own"] = "cross_entropy"
    bce_threshold: float | None = None
    mixup: float
    cutmix: float
    mix_prob: float
    mix_switch_prob: float
    label_smoothing: float
    classifier: Literal["linear", "mlp"] = "linear"
    dropout: float | None
    drop_path: float | None
    drop_path_rule: Literal["model", "uniform"] = "model"
    ema_decay: float | None
    ema_warmup: bool

    decoder_width: int | None = None
    """None: 512 of masks, 256 of objects. A number above 256 would be written into every run."""

    own_loss: OwnFunction | None = None
    """A lab's own loss, where `loss` is `own`; no field of a recipe by itself."""

    @property
    def has_workers(self) -> bool:
        """Whether loader workers read training images one by one."""
        return self.pipeline != "tensor"

    def in_full(self) -> dict[str, Any]:
        """Return every field by its name as JSON has it, those at their defaults included."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: list(value) if isinstance(value, tuple) else to_plain(value)
            for name, value in fields.items()
        }

    def steps_per_epoch(self, train_size: int) -> int:
        """Return the optimizer steps of one epoch over `train_size` images."""
        if self.drop_last:
            return train_size // self.batch_size
        return -(-train_size // self.batch_size)


class ModelShape(Document, frozen=True, kw_only=True):
    """What a backbone is made for: its own settings say the rest."""

    channels: int
    classes: int
    image_size: int
    """Side of the input, pixels."""
    dropout: float | None = None
    """None: the model's own."""
    drop_path: float | None = None
    drop_path_rule: Literal["model", "uniform"] = "model"
    classifier: Literal["linear", "mlp"] = "linear"
    task: Task = "classification"
    decoder_width: int | None = None
    """Channels of the decoder; None: 512 of masks, 256 of objects."""
    longest_side: int | None = None
    """Pixels of an image's longer side at most; None: an image fits into the input as a whole."""


class CellSettings(Document, frozen=True, kw_only=True):
    """What the runs of a cell share."""

    backbone: BackboneSettings
    dataset: DatasetSettings
    head: HeadSettings
    recipe: RecipeSettings

    @property
    def has_own_code(self) -> bool:
        """Whether a part of it is made by a lab's own code."""
        found = self.head.distillation
        teacher = found.teacher if found is not None else None
        return (
            self.backbone.source is not None
            or self.dataset.is_own
            or self.head.is_own
            or self.recipe.transform is not None
            or self.recipe.own_loss is not None
            or (isinstance(teacher, BackboneSettings) and teacher.source is not None)
        )

    @property
    def steps(self) -> int:
        """The optimizer steps of a whole run."""
        return self.recipe.epochs * self.recipe.steps_per_epoch(self.dataset.trained_on)

    @property
    def images_seen(self) -> int:
        """The images that a whole run trains on, each as often as an epoch has it.

        Repeats of an image in one batch are images; views of one for a head are not.
        """
        in_batches = self.steps * self.recipe.batch_size
        return in_batches if self.recipe.drop_last else self.recipe.epochs * self.dataset.trained_on

    @property
    def passes(self) -> float:
        """How often a whole run goes through the different training images.

        Of an epoch with repeated augmentation one image in `repeats` counts.
        """
        return self.images_seen / self.recipe.repeats / self.dataset.trained_on

    @property
    def shape(self) -> ModelShape:
        """What the backbone is made for."""
        return ModelShape(
            channels=self.dataset.channels,
            classes=self.dataset.classes,
            image_size=self.recipe.image_size,
            dropout=self.recipe.dropout,
            drop_path=self.recipe.drop_path,
            drop_path_rule=self.recipe.drop_path_rule,
            classifier=self.recipe.classifier,
            task=self.dataset.task,
            decoder_width=self.recipe.decoder_width,
            longest_side=self.recipe.longest_side,
        )

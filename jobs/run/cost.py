"""What backbones and cells cost, as `vtjobs measure` and `vtjobs cost` print it."""

from ..documents import Document, field


class PrintedCost(Document, frozen=True, kw_only=True):
    """What a paper prints of the same backbone and size: inference on another device."""

    source: str
    """Paper and table."""
    device: str
    """That it was measured on."""
    batch: int
    """Images at a time."""
    precision: str
    """fp16: mixed precision."""
    images_per_second: float
    """Of inference."""
    peak_memory_bytes: int
    """On that device."""
    speed_ratio: float | None
    """Ours over the printed images per second; null where ours is of training."""


class Cost(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What a backbone costs on one device."""

    schema_version: int = 1
    """Raised when a key is removed or changes its meaning."""
    backbone: str
    """As it was asked for."""
    parameters: int
    """Trained or not."""
    multiply_adds: int
    """Of one image, which the papers call FLOPs."""
    batch: int
    """Images at a time."""
    image_size: int
    """Side of the input, pixels."""
    precision: str
    """fp32, fp16 or bf16."""
    pass_: str = field(name="pass")
    """`training` or `inference`."""
    repeats: int
    """Timed passes."""
    images_per_second: float
    """`batch` by the mean time of a pass."""
    seconds: float
    """Of a pass, the mean."""
    seconds_std: float | None
    """Over the passes; null with one."""
    peak_memory_bytes: int | None
    """Null without a GPU."""
    device: str
    """Name of the GPU, or the CPU with its threads."""
    software: dict[str, str]
    """Package -> version."""
    printed: PrintedCost | None = None
    """What a paper prints of it; null where it prints nothing."""


class Counts(Document, frozen=True, kw_only=True):
    """What can be counted of a cell's model without training it."""

    error: str | None = None
    """Why nothing could be counted."""
    parameters: int = 0
    """Of the backbone with its classifier: what finished weights have."""
    head_parameters: int = 0
    """Of the auxiliary head, which is trained and then left out."""
    multiply_adds: int = 0
    """Of one image through the backbone, at the size of training, which papers call FLOPs."""

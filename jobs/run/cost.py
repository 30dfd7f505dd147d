"""What backbones and cells cost, as `vtjobs measure` and `vtjobs cost` print it."""

from collections.abc import Sequence
from statistics import linear_regression

from ..documents import Document
from ..values import field


class PrintedCost(Document, frozen=True, kw_only=True):
    """What a paper prints of the same backbone and size: inference on another device."""

    source: str
    """Paper and table."""
    device: str
    """That it was measured on."""
    batch: int | None
    """Images at a time; null: the largest batch that fits."""
    precision: str | None
    """fp16: mixed precision; null where the text does not say."""
    images_per_second: float
    """Of inference."""
    peak_memory_bytes: int | None
    """On that device; null where it is not printed."""
    differs: list[str]
    """In what our measurement differs beside the device: `pass`, `batch`, `precision`."""
    speed_ratio: float | None
    """Ours over the printed images per second; null where the measurements differ."""
    memory_ratio: float | None
    """Ours over the printed peak memory; null where the measurements differ, or without a GPU."""


class MemoryLine(Document, frozen=True, kw_only=True):
    """The straight line through a backbone's peak memory over the area of its images.

    Least squares over the sizes that were asked for.
    """

    bytes_per_pixel: float
    """Of the whole batch: what one more pixel of each image takes."""
    fixed_bytes: float
    """Where the line begins: what does not depend on the images, such as the weights."""
    largest_deviation: float
    """Of a peak from the line, as a fraction of the peak. Near 0: memory is linear in the area."""
    sizes: int
    """Number of image sizes."""


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
    tokens: int | None = None
    """Patch tokens of an image in the last layer, or places of its last map: 196 of a DeiT at 224
    pixels. Class tokens do not count. Null where the features form no grid.
    """
    batch: int
    """Images at a time."""
    largest_batch: bool = False
    """Whether this is the largest batch that fits the GPU."""
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
    tensor_memory_bytes: int | None = None
    """Of all tensors that are alive at once, at most, without what a kernel takes for itself. Null
    with a GPU.
    """
    memory_line: MemoryLine | None = None
    """Of this backbone; null with fewer than three image sizes."""
    device: str
    """Name of the GPU, or the CPU with its threads."""
    software: dict[str, str]
    """Package -> version."""
    printed: PrintedCost | None = None
    """What a paper prints of it; null where it prints nothing."""


def memory_line(costs: Sequence[Cost]) -> MemoryLine | None:
    """Return the line through the peak memory of one backbone at several image sizes.

    None with fewer than three sizes, with another batch at each, or where memory was not measured.
    PatchConvNet's authors show such a line (thesis, figure 5.3).
    """
    if len({one.batch for one in costs}) > 1:
        return None
    peaks = [one.peak_memory_bytes or one.tensor_memory_bytes for one in costs]
    measured = {
        one.image_size**2: float(peak)
        for one, peak in zip(costs, peaks, strict=True)
        if peak is not None
    }
    if len(measured) < 3:
        return None
    slope, start = linear_regression(list(measured), list(measured.values()))
    return MemoryLine(
        bytes_per_pixel=slope,
        fixed_bytes=start,
        largest_deviation=max(
            abs(start + slope * area - peak) / peak for area, peak in measured.items()
        ),
        sizes=len(measured),
    )


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

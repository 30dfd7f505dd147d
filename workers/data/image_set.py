"""The images of a split, in whatever form they are kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from .objects import OfImage, Size

Reader = Callable[[int], Any]


class AnnotatedImages(Protocol):
    """The objects of a split's images."""

    def size(self, index: int) -> Size:
        """Return height and width of an image by its annotations, pixels."""
        ...

    def objects(self, index: int, shown: Size) -> OfImage:
        """Return the objects of an image that are trained on, as they are at a size."""
        ...

    def truth(self, index: int) -> list[dict[str, Any]]:
        """Return all objects of an image, as COCO's own program takes them."""
        ...


class _Part:
    """Some of a split's images."""

    def __init__(self, whole: AnnotatedImages, chosen: Sequence[int]) -> None:
        self._whole, self._chosen = whole, chosen

    def size(self, index: int) -> Size:
        return self._whole.size(self._chosen[index])

    def objects(self, index: int, shown: Size) -> OfImage:
        return self._whole.objects(self._chosen[index], shown)

    def truth(self, index: int) -> list[dict[str, Any]]:
        return self._whole.truth(self._chosen[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSet:
    """One split: labels, and its images either as one tensor or one by one."""

    labels: Tensor
    """[N] int64."""
    images: Tensor | None = None
    """[N, C, H, W] uint8, where all have one size."""
    reader: Reader | None = None
    """Index -> PIL image, where they have not."""
    files: Sequence[Path] | None = None
    """What names each of them, where they are opened one by one: of a packed one its tar file, and
    its name in that.
    """
    mode: str = "RGB"
    """Pillow's, of the images that are opened one by one."""
    places: Tensor | None = None
    """[N] int64, where these images stand in the split that they are a part of."""

    masks: Callable[[int], Tensor] | None = None
    """Index -> [H, W] uint8, the class of each pixel of an image; 255: none."""
    annotated: AnnotatedImages | None = None
    """The objects of the images."""
    answers: Tensor | None = None
    """[N, classes] bool, all classes that are right; None: those of `labels` alone."""
    only: Tensor | None = None
    """[classes] bool, what a model may choose from; None: all classes."""

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, indices: Tensor) -> "ImageSet":
        """Return the images of these indices, [M] int64, in their order."""
        if self.images is not None:
            return replace(
                self,
                labels=self.labels[indices],
                images=self.images[indices],
                places=indices,
                answers=None if self.answers is None else self.answers[indices],
            )
        chosen = indices.tolist()
        return replace(
            self,
            labels=self.labels[indices],
            reader=lambda index: self.pil(chosen[index]),
            masks=None if self.masks is None else lambda index: self.mask(chosen[index]),
            annotated=None if self.annotated is None else _Part(self.annotated, chosen),
            files=None if self.files is None else [self.files[index] for index in chosen],
            places=indices,
            answers=None if self.answers is None else self.answers[indices],
        )

    def mask(self, index: int) -> Tensor:
        """Return the class of each pixel of an image, [H, W] uint8; 255: none."""
        assert self.masks is not None
        return self.masks(index)

    def objects(self) -> AnnotatedImages:
        """Return what has the objects of the images."""
        assert self.annotated is not None
        return self.annotated

    def pil(self, index: int) -> Any:
        """Return one image as Pillow's."""
        if self.reader is not None:
            return self.reader(index)
        from PIL import Image

        assert self.images is not None
        array = self.images[index].permute(1, 2, 0).numpy()
        return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)

"""Policies of random operations (RandAugment, AutoAugment, 3-Augment, colour jitter) for batches.

timm says what a policy is: its operations, their probabilities, and what a magnitude means. Here
each image of a batch draws its own operations. Those that drew the same one get it together, from
`image_ops`.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from timm.data.auto_augment import (
    AugmentOp,
    RandAugment,
    auto_augment_transform,
    rand_augment_transform,
)
from torch import Tensor

from ...jobs.grid.policy_names import drawn_from
from ...jobs.run.settings import RecipeSettings
from ..transfer import send
from .image_ops import OPERATIONS, affine, rotation

Size = tuple[int, int]
"""Height and width."""
Applied = tuple[str, tuple[float, ...]]
"""An operation of `image_ops`, and its arguments for one image."""
Values = tuple[float, ...]


def _plain(name: str) -> Callable[[Values, Size], Applied]:
    return lambda values, _: (name, values)


def _map(*matrix: Callable[[float, Size], float] | float) -> Callable[[Values, Size], Applied]:
    """Return what makes an affine map of a level; callables give what depends on it."""
    return lambda values, size: (
        "affine",
        tuple(float(part(values[0], size) if callable(part) else part) for part in matrix),
    )


# timm's operations in ours. Of `values`, what timm's level function gave.
_OURS: Mapping[str, Callable[[Values, Size], Applied]] = {
    "AutoContrast": _plain("auto_contrast"),
    "Equalize": _plain("equalize"),
    "Invert": _plain("invert"),
    **dict.fromkeys(("Posterize", "PosterizeIncreasing", "PosterizeOriginal"), _plain("posterize")),
    **dict.fromkeys(("Solarize", "SolarizeIncreasing"), _plain("solarize")),
    "SolarizeAdd": _plain("solarize_add"),
    **dict.fromkeys(("Color", "ColorIncreasing"), _plain("color")),
    **dict.fromkeys(("Contrast", "ContrastIncreasing"), _plain("contrast")),
    **dict.fromkeys(("Brightness", "BrightnessIncreasing"), _plain("brightness")),
    **dict.fromkeys(("Sharpness", "SharpnessIncreasing"), _plain("sharpness")),
    "Desaturate": lambda values, _: ("color", (min(1.0, max(0.0, 1.0 - values[0])),)),
    "GaussianBlur": _plain("gaussian_blur"),
    "GaussianBlurRand": lambda values, _: ("gaussian_blur", (random.uniform(0.1, 2 * values[0]),)),
    "Rotate": lambda values, size: ("affine", rotation(values[0], size)),
    "ShearX": _map(1, lambda level, _: level, 0, 0, 1, 0),
    "ShearY": _map(1, 0, 0, lambda level, _: level, 1, 0),
    "TranslateX": _map(1, 0, lambda level, _: level, 0, 1, 0),
    "TranslateY": _map(1, 0, 0, 0, 1, lambda level, _: level),
    "TranslateXRel": _map(1, 0, lambda level, size: level * size[1], 0, 1, 0),
    "TranslateYRel": _map(1, 0, 0, 0, 1, lambda level, size: level * size[0]),
}


def limit_to_named(transform: Any, name: str) -> None:
    """Leave a 3-Augment of timm's the operations that the recipe names, each as likely.

    Args:
        transform: as timm makes it of the recipe's `auto_augment`.
        name: what the recipe says.
    """
    if kept := drawn_from(name):
        transform.policy = [one for one in transform.policy if one[0].name in kept]


class Policy:
    """What a recipe's `auto_augment` and `color_jitter` do to a batch of images.

    Args:
        recipe: of the run.
        mean: of the dataset's channels, 0 to 1; it fills what a rotation or a shift lays bare.
    """

    def __init__(self, recipe: RecipeSettings, mean: Sequence[float]) -> None:
        self.kernel = recipe.interpolation
        self.jitter = recipe.color_jitter
        self.fill = torch.tensor([min(255.0, round(255 * value)) for value in mean])
        self.policy: Any = None
        if name := recipe.auto_augment:
            # As timm's transforms_factory makes it.
            given = {
                "translate_const": int(recipe.image_size * 0.45),
                "img_mean": tuple(int(value) for value in self.fill.tolist()),
            }
            make = rand_augment_transform if name.startswith("rand") else auto_augment_transform
            self.policy = make(name, given)
            limit_to_named(self.policy, name)

    def draw(self, count: int, size: Size, key: int) -> list[list[Applied]]:
        """Return the operations of each image, in order.

        Args:
            count: images.
            size: of each.
            key: all draws follow from it.
        """
        with _drawing_from(key):
            return [
                [*self._of_policy(size), *(self._of_jitter() if self.jitter else ())]
                for _ in range(count)
            ]

    def apply(self, images: Tensor, drawn: Sequence[Sequence[Applied]]) -> Tensor:
        """Return images [B, C, H, W], whole levels 0…255 in float32, after their operations."""
        images = images.clone()
        for turn in range(max(map(len, drawn), default=0)):
            groups: dict[str, list[tuple[int, Values]]] = defaultdict(list)
            for index, operations in enumerate(drawn):
                if turn < len(operations):
                    name, values = operations[turn]
                    groups[name].append((index, values))
            for name, members in sorted(groups.items()):
                which = send(torch.tensor([index for index, _ in members]), images.device)
                arguments = torch.tensor([values for _, values in members], dtype=torch.float64)
                images[which] = self._operate(images[which], name, arguments)
        return images

    def _operate(self, images: Tensor, name: str, arguments: Tensor) -> Tensor:
        if name == "affine":
            matrices, fill = send(arguments, images.device), send(self.fill, images.device)
            return affine(images, matrices, fill=fill, kernel=self.kernel)
        single = arguments[:, 0] if arguments.shape[1] else arguments.new_zeros(len(arguments))
        if name == "gaussian_blur":
            return OPERATIONS[name](images, single.float())
        return OPERATIONS[name](images, send(single.float(), images.device))

    def _of_policy(self, size: Size) -> Iterator[Applied]:
        for operation in self._chosen():
            # In the order of timm's AugmentOp.__call__.
            if operation.prob < 1.0 and random.random() > operation.prob:
                continue
            yield _OURS[operation.name](_level(operation), size)

    def _chosen(self) -> Sequence[AugmentOp]:
        if self.policy is None:
            return ()
        if isinstance(self.policy, RandAugment):
            return numpy.random.choice(
                self.policy.ops,
                self.policy.num_layers,
                replace=self.policy.choice_weights is None,
                p=self.policy.choice_weights,
            )
        return random.choice(self.policy.policy)

    def _of_jitter(self) -> list[Applied]:
        """Return torchvision's ColorJitter without hue: three factors, in a random order."""
        low, high = max(0.0, 1 - self.jitter), 1 + self.jitter
        found: list[Applied] = [
            (name, (random.uniform(low, high),)) for name in ("brightness", "contrast", "color")
        ]
        random.shuffle(found)
        return found


def _level(operation: AugmentOp) -> Values:
    """Draw the magnitude of an operation, and return what timm makes of it."""
    magnitude, spread = operation.magnitude, operation.magnitude_std
    if spread == float("inf"):
        magnitude = random.uniform(0, magnitude)
    elif spread > 0:
        magnitude = random.gauss(magnitude, spread)
    # 10 is the top of timm's scale.
    magnitude = max(0.0, min(magnitude, operation.magnitude_max or 10.0))
    if operation.level_fn is None:
        return ()
    return tuple(operation.level_fn(magnitude, operation.hparams))


@contextmanager
def _drawing_from(key: int) -> Iterator[None]:
    """Seed the generators that timm draws from, and leave them as they were."""
    before, arrays = random.getstate(), numpy.random.get_state()
    random.seed(key)
    numpy.random.seed(key & 0xFFFFFFFF)
    try:
        yield
    finally:
        random.setstate(before)
        numpy.random.set_state(arrays)

"""What each stream of randomness decided at the beginning of a run, as one hash each.

Two runs with one value of a stream have one fingerprint of it, whatever their other streams are: so a seed that is not
wired in, or wired in twice, shows. Where a stream decides nothing in a run (no Mixup, no dropout, no validation split)
there is None.
"""

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .backbones import input_side
from .data import Position, TensorSource
from .datasets import ImageSet
from .pil import PilTransform
from .randomness import Streams
from .trainee import Numerics, Trainee, frozen_statistics, layers_with_statistics

if TYPE_CHECKING:
    from .train import Training

# Images of the probe, an even number for Mixup's halves.
COUNT = 4
START = (0, 0, 0)


def fingerprints(training: "Training", train: ImageSet) -> dict[str, str | None]:
    """Return stream -> 16 hexadecimal digits, before the first step.

    Each is taken of what training itself uses: the initial weights, the held-out part, the first epoch's order, what
    augmentation and Mixup make of the same synthetic images, and what one forward pass draws. It moves no weight and no
    running statistic.

    Args:
        training: set up, but not begun.
        train: the images that it trains on.
    """
    spec, streams, trainee = training.spec, training.streams, training.trainee
    images = _probe(spec.dataset, spec.recipe)
    augmented = _augmented(images, spec, streams)
    found: dict[str, str | None] = {
        "init": _hash(*(value for _, value in sorted(trainee.state_dict().items()))),
        "split": _hash(train.places) if "val" in spec.dataset and train.places is not None else None,
        "order": _hash(training.order.permutation(0)),
        "augment": None,
        "mix": None,
    }
    if training.mixup is not None:
        streams.seed_numpy("mix", "mixup", *START)
        plain = torch.linspace(0.0, 1.0, augmented.numel()).view_as(augmented)
        found["mix"] = _hash(*training.mixup(plain, images.labels))
    if training.patches is not None:
        generator = streams.generator("augment", "patches", *START)
        moved, places = training.patches.train(augmented.to(training.group.device), generator)
        augmented = moved if places is None else torch.cat([moved.flatten().cpu(), places.flatten().float().cpu()])
    found["augment"] = _hash(augmented)
    return found | _drawn(spec, streams, trainee, training.numerics)


def _probe(dataset: dict[str, Any], recipe: dict[str, Any]) -> ImageSet:
    shape = (COUNT, dataset["channels"], recipe["image_size"], recipe["image_size"])
    pattern = torch.arange(torch.Size(shape).numel()).mul(97).remainder(251).to(torch.uint8).view(shape)
    return ImageSet(labels=torch.arange(COUNT) % dataset["classes"], images=pattern)


def _augmented(images: ImageSet, spec: Any, streams: Streams) -> Tensor:
    if spec.recipe["pipeline"] == "pil":
        transform = PilTransform(images, spec.dataset, spec.recipe, streams)
        return torch.stack([transform(0, index) for index in range(COUNT)])
    source = TensorSource(images, spec.dataset, spec.recipe, streams, torch.device("cpu"))
    return source.batch(torch.arange(COUNT), Position(epoch=0, step=0, virtual_rank=0))[0]


def _drawn(spec: Any, streams: Streams, trainee: Trainee, numerics: Numerics) -> dict[str, str | None]:
    """Return what one forward pass in training takes from the streams `drop` and `pair`."""
    size = input_side(spec.head, trainee.backbone, spec.recipe["image_size"])
    images = torch.zeros(2, spec.dataset["channels"], size, size, device=numerics.device)
    generator = streams.generator("pair", "head", *START, 0)
    streams.seed_torch("drop", "backbone", *START, 0)
    before = generator.get_state(), _torch_state()
    with torch.no_grad(), frozen_statistics(layers_with_statistics(trainee), True), numerics.autocast():
        trainee(images, generator)
    after = generator.get_state(), _torch_state()
    pair, drop = (None if torch.equal(*states) else _hash(states[1]) for states in zip(before, after, strict=True))
    return {"drop": drop, "pair": pair}


def _torch_state() -> Tensor:
    states = [torch.default_generator.get_state()]
    if torch.cuda.is_available():
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)


def _hash(*values: Tensor) -> str:
    found = hashlib.blake2b(digest_size=8)
    for value in values:
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()

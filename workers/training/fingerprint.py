"""What each stream of randomness decided at the beginning of a run, as one hash each.

Two runs with one value of a stream have one fingerprint of it, whatever their other streams are: so
a seed that is not wired in, or wired in twice, shows. Where a stream decides nothing in a run (no
Mixup, no dropout, no validation split) there is None.
"""

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...jobs.run.settings import DatasetSettings, RecipeSettings
from ..data.batches import Finish, Position, TensorSource
from ..data.image_set import ImageSet
from ..data.objects import OfImage, Size, no_objects
from ..data.timm_pipeline import samples
from ..randomness import Streams
from .trainee import blank

if TYPE_CHECKING:
    from .loop import Training

# Images of the probe: with fewer, two values of a stream that only flips images may well do the
# same.
COUNT = {"tensor": 32, "pil": 20, "hybrid": 20}
# Batches that Mixup is asked for: it may leave some as they are.
BATCHES = 8
START = (0, 0, 0)


def fingerprints(training: "Training", train: ImageSet) -> dict[str, str | None]:
    """Return stream -> 16 hexadecimal digits, before the first step.

    Each is taken of what training itself uses: the weights as they were drawn, the held-out part,
    the first epoch's order, what augmentation and Mixup make of the same synthetic images, and
    whether a forward pass draws. It moves no weight and no buffer.

    Args:
        training: set up, but not begun.
        train: the images that it trains on.
    """
    spec, streams = training.spec, training.streams
    other = Streams({**spec.seeds, "augment": spec.seeds["augment"] + 1})
    augmented, again = (_augmented(training, one) for one in (streams, other))
    return {
        "init": training.drawn_weights,
        "split": (
            _hash(train.places)
            if spec.dataset.val is not None and train.places is not None
            else None
        ),
        "order": _hash(training.order.permutation(0)),
        # Nothing is augmented where another value does the same.
        "augment": _hash(augmented) if not torch.equal(augmented, again) else None,
        "mix": _mixed(training),
        **_drawn(training),
    }


def of_weights(model: torch.nn.Module) -> str:
    """Return the fingerprint of all parameters and buffers."""
    return _hash(
        *(value for _, value in sorted(model.state_dict().items()) if isinstance(value, Tensor))
    )


def _probe(dataset: DatasetSettings, recipe: RecipeSettings) -> ImageSet:
    count = COUNT[recipe.pipeline]
    shape = (count, dataset.channels, recipe.image_size, recipe.image_size)
    pattern = (
        torch.arange(torch.Size(shape).numel()).mul(97).remainder(251).to(torch.uint8).view(shape)
    )
    side = recipe.image_size
    mask = torch.arange(side * side).view(side, side).remainder(dataset.classes).to(torch.uint8)
    return ImageSet(
        labels=torch.arange(count) % dataset.classes,
        images=pattern,
        masks=(lambda _: mask) if dataset.has_masks else None,
        annotated=_NoObjects(side) if dataset.has_objects else None,
    )


class _NoObjects:
    """Images without any object."""

    def __init__(self, side: int) -> None:
        self._size = (side, side)

    def size(self, _: int) -> Size:
        return self._size

    def objects(self, _: int, shown: Size) -> OfImage:
        return next(no_objects(1, shown, torch.device("cpu")).by_image())

    def truth(self, _: int) -> list[dict[str, Any]]:
        return []


def _augmented(training: "Training", streams: Streams) -> Tensor:
    spec, patches = training.spec, training.patches
    images = _probe(spec.dataset, spec.recipe)
    every = torch.arange(len(images))
    start, cpu = Position(epoch=0, step=0, virtual_rank=0), torch.device("cpu")
    if spec.recipe.has_workers:
        made = samples(images, spec.dataset, spec.recipe, streams)
        whole = made.collate([made.sample(0, index, range(1)) for index in every.tolist()])[0][:, 0]
        found = Finish(spec.dataset, spec.recipe, streams, cpu)(whole, start)
    else:
        source = TensorSource(images, spec.dataset, spec.recipe, streams, cpu)
        found = source.batch(every, start)[0]
    if patches is None:
        return found
    moved, places = patches.train(
        found.to(training.group.device), streams.generator("augment", "patches", *START)
    )
    return torch.cat(
        [moved.flatten().cpu(), *([] if places is None else [places.flatten().float().cpu()])]
    )


def _mixed(training: "Training") -> str | None:
    if training.mixup is None:
        return None
    images = _probe(training.spec.dataset, training.spec.recipe)
    assert images.images is not None
    plain = images.images.float() / 255
    parts: list[Tensor] = []
    for step in range(BATCHES):
        training.streams.seed_numpy("mix", "mixup", 0, step, 0)
        parts += training.mixup(plain.clone(), images.labels)
    return _hash(*parts)


def _drawn(training: "Training") -> dict[str, str | None]:
    """Return where the streams `drop` and `pair` stand at the first pass, if that draws from them
    at all.
    """
    spec, streams, trainee = training.spec, training.streams, training.trainee
    device = training.group.device
    buffers = {name: value.clone() for name, value in trainee.named_buffers()}
    generator = streams.generator("pair", "head", *START, 0)
    streams.seed_torch("drop", "backbone", *START, 0)
    before = generator.get_state(), torch.default_generator.get_state()
    # Dropout on a GPU draws from the GPU's generator.
    on_gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        shown = blank(trainee, spec, 4, generator, device)
        with training.numerics.autocast():
            trainee(*shown)
    except Exception:
        # A head of somebody's own may need more than this; training itself will say so if it does.
        return {"drop": None, "pair": None}
    finally:
        with torch.no_grad():
            for name, value in trainee.named_buffers():
                if name in buffers and buffers[name].shape == value.shape:
                    value.copy_(buffers[name])
    pairs = not torch.equal(before[0], generator.get_state())
    drops = not torch.equal(before[1], torch.default_generator.get_state())
    drops |= on_gpu is not None and not torch.equal(on_gpu, torch.cuda.get_rng_state(device))
    return {
        "drop": _hash(before[1]) if drops else None,
        "pair": _hash(before[0]) if pairs else None,
    }


def _hash(*values: Tensor) -> str:
    found = hashlib.blake2b(digest_size=8)
    for value in values:
        found.update(
            value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return found.hexdigest()

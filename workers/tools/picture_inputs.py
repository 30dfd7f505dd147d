"""Images as the network gets them, and as somebody can look at them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...jobs.grid import catalogue
from ...jobs.run.settings import DatasetSettings
from ...jobs.run.spec import RunSpec
from ..data.batches import EvalSource, normaliser
from ..data.decoded import Decoder
from ..data.image_set import ImageSet
from .png import png


def inputs_of(
    images: ImageSet, places: Sequence[int], spec: RunSpec, set_name: str, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Return some images of a set as they are evaluated, normalised.

    Args:
        images: the set.
        places: of the images, in the order that they come in.
        spec: of the run.
        set_name: of the set.
        device: where to.

    Returns:
        [B, C, S, S] float32; and [classes] bool, what a model may choose from, or None.
    """
    source = EvalSource(
        images.part(torch.tensor(places)),
        spec.dataset,
        catalogue.recipe_on(set_name, spec.dataset, spec.recipe),
        device,
        decoder=Decoder(),
    )
    inputs = torch.cat([batch[0] for batch in source.batches() if batch is not None])
    return inputs, source.only


def as_png(inputs: Tensor, dataset: DatasetSettings) -> list[bytes]:
    """Return normalised images [B, C, S, S] as files, without their normalisation."""
    mean, std = normaliser(dataset, inputs.device)
    plain = (inputs * std + mean).round().clamp(0, 255).byte().cpu()
    return [png(image) for image in plain]

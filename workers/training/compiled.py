"""A model compiled for the batches that are usual."""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn

from ...jobs.run.settings import RecipeSettings


def compiled(model: nn.Module, sizes: Collection[int]) -> Callable[..., Any]:
    """Return what calls a model, compiled for batches of these sizes.

    Each size has a graph of its own, so which kernels run does not depend on what a process has
    seen before, and a resumed run takes the same. Batches of another size, such as the short last
    one of an epoch, run as they are: nothing is compiled for one step.

    Args:
        model: its first argument is a batch of images; it may be in DDP.
        sizes: images in a usual batch.
    """
    fast = torch.compile(model, dynamic=False)

    def call(images: Tensor, *more: Any) -> Any:
        return (fast if len(images) in sizes else model)(images, *more)

    return call


def usual_sizes(recipe: RecipeSettings, micro_split: int, views: int = 1) -> set[int]:
    """Return the sizes of the parts that the shares of a whole batch are cut into, in images.

    Args:
        recipe: of the run.
        micro_split: parts of a share.
        views: of each image.
    """
    return {
        len(part) * views
        for share in torch.arange(recipe.batch_size).tensor_split(recipe.virtual_ranks)
        for part in share.chunk(micro_split)
    }

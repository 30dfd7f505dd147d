"""What each block of a network adds to what goes through it, and what becomes of its tokens."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from ...jobs.errors import BadInput
from ...jobs.run.pictures import BlockDepth
from ...jobs.values import changed


class NoBlocks(BadInput):
    """A network has no block that normalises its input and adds to it twice."""


@torch.no_grad()
def depth(model: nn.Module, images: Tensor) -> list[BlockDepth]:
    """Return what each block adds, from the first on.

    A block adds twice: x + mixing(norm(x)), then x + MLP(norm(x)), where what mixes tokens is
    mostly attention. The norm of what is added, divided by that of what it is added to, is a mean
    over tokens and images (thesis, figure 3.6). Where the network has a distillation token beside
    the class token, their cosine similarity follows (thesis, section 3.3), first of the two learned
    tokens.

    Args:
        model: in evaluation mode.
        images: [B, C, S, S], normalised.

    Raises:
        NoBlocks: no block is of that form.
    """
    found: list[BlockDepth] = []
    handles = [handle for block in _blocks(model) for handle in _watch(block, found.append)]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    # They end in the order in which they are passed through.
    found = [changed(one, block=number) for number, one in enumerate(found, start=1)]
    if not found:
        raise NoBlocks(
            f"--kind depth: {type(model).__name__} has no blocks that normalise their input and add"
            " to it twice, as vision transformers and ResMLP have"
        )
    first, second = (getattr(model, name, None) for name in ("cls_token", "dist_token"))
    if isinstance(first, nn.Parameter) and isinstance(second, nn.Parameter):
        learned = float(cosine_similarity(first.flatten(), second.flatten(), dim=0))
        return [BlockDepth(block=0, similarity=learned), *found]
    # Of other networks the second token is a patch.
    return [changed(one, similarity=None) for one in found]


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    for module in model.modules():
        if all(isinstance(getattr(module, part, None), nn.Module) for part in ("norm1", "norm2")):
            yield module


def _watch(block: nn.Module, tell: Callable[[BlockDepth], None]) -> list[Any]:
    """Have a block tell of each image batch what it adds; its tensors are kept no longer."""
    seen: dict[str, Tensor] = {}

    def note(part: str, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # [B, …, C] -> [B, N, C]
        seen[part] = inputs[0].flatten(1, -2)

    def end(_: nn.Module, __: object, output: Tensor) -> None:
        given, before, middle = (seen.pop(part, None) for part in ("given", "norm1", "norm2"))
        if given is None or before is None or middle is None:
            return
        # A block whose first norm gets something else than the block did is of another form.
        if given.shape == before.shape == middle.shape and torch.equal(given, before):
            tell(_of_block(given, middle, output.flatten(1, -2)))

    return [
        block.register_forward_pre_hook(partial(note, "given")),
        block.norm1.register_forward_pre_hook(partial(note, "norm1")),
        block.norm2.register_forward_pre_hook(partial(note, "norm2")),
        block.register_forward_hook(end),
    ]


def _of_block(given: Tensor, middle: Tensor, end: Tensor) -> BlockDepth:
    tokens = cosine_similarity(end[:, 0], end[:, min(1, end.shape[1] - 1)], dim=1)
    return BlockDepth(
        block=1,
        mixing=_added(given, middle),
        mlp=_added(middle, end),
        similarity=float(tokens.mean()),
    )


def _added(before: Tensor, after: Tensor) -> float:
    sizes = (after - before).norm(dim=-1) / before.norm(dim=-1).clamp_min(1e-12)
    return float(sizes.mean())

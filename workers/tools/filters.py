"""What a network's own weights look like: filters over patches, and how sparse its layers are."""

import re

import torch
from torch import Tensor, nn

from ...jobs.errors import BadInput
from ...jobs.run.pictures import LayerSparsity, Panel, Shown

# Filters of a block that are drawn.
DRAWN = 8
# A weight counts as zero below this share of the largest of its layer (thesis, section 4.3).
NEAR_ZERO = 0.05
_LAYER = re.compile(r"(?:.*\.)?blocks\.([0-9]+)\.(.+)")


def filters(model: nn.Module) -> list[Shown]:
    """Return of each block some rows of the matrix that mixes patches, each as an image.

    Row i of the matrix of a ResMLP says how much of each patch goes into patch i.

    Args:
        model: a ResMLP or an MLP-Mixer, of timm.

    Raises:
        BadInput: no layer mixes patches by fixed weights.
    """
    found = []
    for name, layer, makes_patches in _mixing(model):
        weights = layer.weight.detach().float()
        side = round(weights.shape[1] ** 0.5)
        rows = torch.linspace(0, len(weights) - 1, min(DRAWN, len(weights))).round().long()
        panels = []
        for row in rows.tolist():
            title = f"patch {row // side + 1}, {row % side + 1}"
            title = title if makes_patches else f"unit {row + 1}"
            panels.append(_panel(weights[row].view(side, side), title))
        found.append(Shown(title=name, panels=panels))
    if not found:
        raise BadInput(
            f"--kind filters: {type(model).__name__} mixes patches by no fixed weights, as ResMLP"
            " and MLP-Mixer do"
        )
    return found


def sparsity(model: nn.Module) -> list[LayerSparsity]:
    """Return how sparse each linear layer of each block is."""
    mixing = {id(layer) for _, layer, _ in _mixing(model)}
    found = []
    for name, layer in model.named_modules():
        match = _LAYER.match(name)
        if match is None or not isinstance(layer, nn.Linear):
            continue
        found.append(
            LayerSparsity(
                layer=name,
                kind="patches" if id(layer) in mixing else match[2],
                block=int(match[1]) + 1,
                sparsity=near_zero(layer.weight.detach()),
            )
        )
    return found


def near_zero(weights: Tensor) -> float:
    """Return the percent of weights whose magnitude is below 5 % of the largest."""
    sizes = weights.abs()
    # In a layer of zeros, all of them are.
    is_near = (sizes < NEAR_ZERO * sizes.max()) | (sizes == 0)
    return 100.0 * float(is_near.float().mean())


def _mixing(model: nn.Module) -> list[tuple[str, nn.Linear, bool]]:
    """Return the name of each block and the layer whose inputs are all patches.

    And whether its outputs are patches; those of an MLP's first layer are hidden units.
    """
    found = []
    for number, block in enumerate(getattr(model, "blocks", ()), start=1):
        whole = getattr(block, "linear_tokens", getattr(block, "mlp_tokens", None))
        layer = getattr(whole, "fc1", whole)
        if isinstance(layer, nn.Linear) and round(layer.in_features**0.5) ** 2 == layer.in_features:
            found.append((f"block {number}", layer, layer is whole))
    return found


def _panel(values: Tensor, title: str) -> Panel:
    # Zero has the colour in the middle.
    most = float(values.abs().max())
    return Panel(title=title, values=values.tolist(), low=-most, high=most)

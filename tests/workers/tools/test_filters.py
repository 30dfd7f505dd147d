"""A network's own weights as pictures, and how many of them are near zero."""

from typing import Any

import pytest
import timm
import torch
from timm.models.mlp_mixer import MlpMixer

from vtjobs.jobs.errors import BadInput
from vtjobs.workers import models  # noqa: F401  registers ours with timm
from vtjobs.workers.tools.filters import filters, near_zero, sparsity


def made(name: str, **arguments: Any) -> Any:
    return timm.create_model(name, num_classes=5, **{"img_size": 16, "patch_size": 4, **arguments})


@pytest.mark.paper("RM-08")
def test_a_filter_is_a_row_of_the_matrix_that_mixes_patches() -> None:
    model = made("resmlp_s12")
    blocks = filters(model)
    assert [block.title for block in blocks] == [f"block {number}" for number in range(1, 13)]
    third = blocks[2].panels[-1]
    assert third.title == "patch 4, 4"
    weights = model.blocks[2].linear_tokens.weight
    assert torch.equal(torch.tensor(third.values).flatten(), weights[15])


def test_zero_has_the_colour_in_the_middle() -> None:
    for panel in filters(made("resmlp_s12"))[0].panels:
        assert panel.low == -panel.high == -max(abs(x) for row in panel.values for x in row)


def test_units_of_an_mlp_over_patches_are_filters_as_well() -> None:
    model = timm.create_model("mixer_s32_224", num_classes=5)
    unit = filters(model)[0].panels[0]
    assert unit.title == "unit 1"
    square = MlpMixer(img_size=128, patch_size=32, embed_dim=32, num_blocks=1)
    assert filters(square)[0].panels[0].title == "unit 1", "16 units over 16 patches are no patches"
    weights = model.blocks[0].mlp_tokens.fc1.weight
    assert torch.equal(torch.tensor(unit.values).flatten(), weights[0])


def test_a_network_without_such_weights_is_refused() -> None:
    with pytest.raises(BadInput, match="VisionTransformer mixes patches by no fixed weights"):
        filters(made("vit_small_patch16_224"))


@pytest.mark.paper("RM-07")
def test_a_weight_below_five_percent_of_the_largest_counts_as_zero() -> None:
    assert near_zero(torch.tensor([2.0, -0.11, 0.099, -0.099, 0.0])) == pytest.approx(60)


def test_in_a_layer_of_zeros_all_weights_count() -> None:
    assert near_zero(torch.zeros(3)) == 100


@pytest.mark.paper("RM-07")
def test_each_linear_layer_of_each_block_has_its_sparsity() -> None:
    model = made("resmlp_s12")
    with torch.no_grad():
        model.blocks[1].linear_tokens.weight[:8] = 0
    found = {layer.layer: layer for layer in sparsity(model)}
    assert len(found) == 3 * 12
    one = found["blocks.1.linear_tokens"]
    assert (one.kind, one.block) == ("patches", 2) and 50 <= one.sparsity < 60
    assert {layer.kind for layer in found.values()} == {
        *("patches", "mlp_channels.fc1", "mlp_channels.fc2")
    }


def test_units_that_mix_patches_of_a_resmlp_are_filters_as_well() -> None:
    assert filters(made("resmlp_s12", mixing="mlp"))[0].panels[0].title == "unit 1"

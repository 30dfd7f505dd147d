"""Attention and class activation maps, held against what timm and the equations give."""

from typing import Any

import pytest
import timm
import torch
from timm.utils import AttentionExtract
from torch import Tensor, nn
from torch.nn import functional as F

from vtjobs.jobs.errors import BadInput
from vtjobs.workers import models  # noqa: F401  registers ours with timm
from vtjobs.workers.tools.saliency import class_activation, class_attention

VIT: dict[str, Any] = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 2}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "vit_small_patch16_224": VIT,
    "deit_tiny_distilled_patch16_224": VIT,
    "cait_xxs24_224": VIT,
}


def made(name: str, **arguments: Any) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=5, **arguments).eval()


def images(count: int = 3, side: int = 16) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_attention_is_what_timm_computes_where_nothing_is_fused(name: str) -> None:
    model = made(name, **TRANSFORMERS[name])
    # LayerScale of CaiT would leave all layers but alike.
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    (*_, last) = class_attention(model, images())
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    seen = list(AttentionExtract(model, method="hook")(images()).values())[-1]
    patches = seen[:, :, 0, -16:].unflatten(-1, (4, 4))
    torch.testing.assert_close(last, patches, rtol=1e-5, atol=1e-6)


@pytest.mark.paper("CA-17")
def test_each_layer_with_the_class_token_as_its_only_query_is_given() -> None:
    found = class_attention(made("cait_xxs24_224", **VIT), images())
    assert [tuple(layer.shape) for layer in found] == [(3, 2, 4, 4)] * 2


@pytest.mark.paper("PC-03", "PC-15")
def test_patchconvnet_pools_by_one_head_over_all_patches() -> None:
    (found,) = class_attention(made("patchconvnet_s20", embed_dim=16, depth=1), images(side=32))
    assert found.shape == (3, 1, 2, 2)
    # The class token is itself among what it attends to.
    assert (found.sum((2, 3)) < 1).all()


def test_merged_keys_are_given_on_their_own_grid() -> None:
    (found,) = class_attention(made("cvt_13"), images(side=64))
    assert found.shape == (3, 6, 2, 2)


def test_a_model_computes_as_before_after_its_attention_was_seen() -> None:
    model = made("vit_small_patch16_224", **VIT)
    switches = [False, True, False]
    for block, switch in zip(model.blocks, switches, strict=True):
        block.attn.fused_attn = switch
    class_attention(model, images())
    assert [block.attn.fused_attn for block in model.blocks] == switches


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("resnet18", {}),
        ("swin_tiny_patch4_window7_224", {"img_size": 32, "window_size": 4}),
        ("vit_small_patch16_224", VIT | {"class_token": False, "global_pool": "avg"}),
    ],
)
def test_without_a_class_token_there_is_no_attention_of_it(name: str, arguments: Any) -> None:
    with pytest.raises(BadInput, match=r"no attention of a class token .* Try --kind cam"):
        class_attention(made(name, **arguments), images(side=arguments.get("img_size", 32)))


def test_on_pooled_features_the_map_is_that_of_zhou_et_al() -> None:
    """Their map is the features of each place times the weights of the class."""
    model = made("resnet18")
    shown = images(side=64)
    classes = torch.tensor([0, 3, 4])
    (found,) = class_activation(model, shown, [classes])
    with torch.no_grad():
        features = model.forward_features(shown)
        weights = model.get_classifier().weight[classes]
        plain = F.relu(torch.einsum("bd,bdhw->bhw", weights, features))
    # Each gradient is the weight divided by the number of places.
    torch.testing.assert_close(found * 4, plain)


def test_of_a_class_token_the_map_comes_from_the_block_before_the_last() -> None:
    model = made("vit_small_patch16_224", **VIT)
    (found,) = class_activation(model, images(), [torch.zeros(3, dtype=torch.int64)])
    seen: list[Tensor] = []
    handle = model.blocks[1].register_forward_hook(lambda _m, _i, out: seen.append(out))
    score = model(images())[:, 0].sum()
    handle.remove()
    (slopes,) = torch.autograd.grad(score, seen)
    slopes, values = slopes[:, 1:], seen[0][:, 1:]
    plain = F.relu((slopes.mean(1, keepdim=True) * values).sum(-1)).unflatten(1, (4, 4))
    torch.testing.assert_close(found, plain.detach())


def test_of_a_single_block_the_map_comes_from_what_it_gets() -> None:
    model = made("vit_small_patch16_224", **VIT | {"depth": 1})
    (found,) = class_activation(model, images(), [torch.zeros(3, dtype=torch.int64)])
    assert found.shape == (3, 4, 4) and found.any()


@pytest.mark.parametrize(
    ("name", "arguments", "side", "grid"),
    [
        ("cait_xxs24_224", VIT, 16, 4),
        ("patchconvnet_s20", {"embed_dim": 16, "depth": 2}, 32, 2),
        ("swin_tiny_patch4_window7_224", {"img_size": 32, "window_size": 4}, 32, 1),
        ("resmlp_s12", {"img_size": 16, "patch_size": 4}, 16, 4),
        ("cvt_13", {}, 64, 4),
        ("t2t_vit_14", {"img_size": 64}, 64, 4),
    ],
)
def test_each_class_has_a_map_of_its_own(name: str, arguments: Any, side: int, grid: int) -> None:
    model = made(name, **arguments)
    # What starts at zero or near it hides the patches from the classifier.
    for parameter in model.parameters():
        if parameter.std() < 1e-3 or parameter.numel() == 1:
            nn.init.normal_(parameter, std=0.5)
    classes = [torch.full((3,), number) for number in (0, 1)]
    one, other = class_activation(model, images(side=side), classes)
    assert one.shape == other.shape == (3, grid, grid)
    assert (one >= 0).all() and not torch.equal(one, other)


@pytest.mark.parametrize(
    "name",
    ["tnt_s_legacy_patch16_224", "crossvit_9_240", "coat_tiny", "pit_ti_distilled_224"],
)
def test_without_a_grid_of_an_image_there_is_no_map(name: str) -> None:
    """TNT's blocks see parts of patches; the others hand on several tensors."""
    model = timm.create_model(name, num_classes=5).eval()
    shown = images(count=2, side=model.default_cfg["input_size"][1])
    with pytest.raises(BadInput, match="form a grid"):
        class_activation(model, shown, [torch.zeros(2, dtype=torch.int64)])
    with pytest.raises(BadInput, match="--kind attention"):
        class_attention(model, shown)


def test_tokens_that_are_no_patches_are_no_grid() -> None:
    """PiT's features are its class token alone; the map is that of its last grid."""
    model = timm.create_model("pit_ti_224", num_classes=5).eval()
    shown = images(count=2, side=224)
    (found,) = class_activation(model, shown, [torch.zeros(2, dtype=torch.int64)])
    assert found.shape == (2, 7, 7)

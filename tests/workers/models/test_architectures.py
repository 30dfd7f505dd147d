"""The backbones that vtjobs brings.

Their size, their shapes, and their attention read straight from the formulas.
"""

import math

import pytest
import timm
import torch
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn import functional as F

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.model_names import OWN
from vtjobs.jobs.run.settings import BackboneSettings, ModelShape
from vtjobs.workers import models  # noqa: F401
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import CLASS_TOKEN_STD, build
from vtjobs.workers.models.cvt import ChannelNorm, OfficialAttention, SharedAttention
from vtjobs.workers.models.t2t import PERFORMER_EPS, PerformerLayer, sinusoids
from vtjobs.workers.models.tokens import token_grid

from ...support.training import make_backbone

# Small enough to train a step on a core; the families keep their shape.
SMALL: dict[str, dict[str, object]] = {
    "t2t_vit_14": {"depth": 1},
    "cvt_13": {"depths": (1, 1, 2)},
    "cvt_13_drloc": {"depths": (1, 1, 2)},
    "patchconvnet_s60": {"depth": 2},
}


@pytest.mark.paper("DR-30", "DR-31", "PC-01", "PC-02")
@pytest.mark.parametrize(
    ("name", "parameters", "trained"),
    [
        ("t2t_vit_14", 21_545_550, 21_465_806),
        ("cvt_13", 19_997_480, 19_997_480),
        ("cvt_13_drloc", 19_936_296, 19_936_296),
        ("vit_b16_drloc", 86_540_008, 86_540_008),
        ("patchconvnet_s60", 25_231_096, 25_231_096),
        ("patchconvnet_s120", 47_723_896, 47_723_896),
        ("patchconvnet_b60", 99_388_936, 99_388_936),
        ("patchconvnet_b120", 188_611_336, 188_611_336),
    ],
)
def test_a_backbone_has_the_parameters_of_its_publication(
    name: str, parameters: int, trained: int
) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
        logits = model(torch.zeros(1, 3, 224, 224))
    assert sum(weight.numel() for weight in model.parameters()) == parameters
    assert sum(weight.numel() for weight in model.parameters() if weight.requires_grad) == trained
    assert logits.shape == (1, 1000)


# Millions of parameters (table 3.15 of the thesis).
CAIT = {
    "cait_xxs24": 12.0,
    "cait_xxs36": 17.3,
    "cait_xs24": 26.6,
    "cait_xs36": 38.6,
    "cait_s24": 46.9,
    "cait_s36": 68.2,
    "cait_s48": 89.5,
    "cait_m24": 185.9,
    "cait_m36": 270.9,
}


@pytest.mark.paper("CA-09")
@pytest.mark.parametrize("name", CAIT)
def test_each_cait_has_the_printed_parameters(name: str) -> None:
    backbone = catalogue.backbone(name)
    with torch.device("meta"):
        model = timm.create_model(backbone.model, img_size=224, **backbone.args)
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    assert millions == pytest.approx(CAIT[name], abs=0.06)


# Millions of parameters at 1000 classes and 224 pixels: thesis, tables 4.3, 6.7 and 6.8.
PRINTED = {
    "resmlp_s12": 15.4,
    "resmlp_s24": 30.0,
    "resmlp_b24": 115.7,
    "resmlp_s12_p14": 15.6,
    "resmlp_s12_p8": 22.1,
    "resmlp_b24_p8": 129.1,
    "deit3_s": 22.0,
    "deit3_b": 86.6,
    "deit3_l": 304.4,
    "deit3_h": 632.1,
}


@pytest.mark.paper("RM-01", "RM-03", "D3-09")
@pytest.mark.parametrize("name", PRINTED)
def test_each_resmlp_and_deit_iii_has_the_printed_parameters(name: str) -> None:
    assert _parameters(name) / 1e6 == pytest.approx(PRINTED[name], abs=0.06)


def _parameters(name: str, *, image_size: int = 224, classes: int = 1000) -> int:
    shape = ModelShape(channels=3, classes=classes, image_size=image_size)
    with torch.device("meta"):
        model = build(catalogue.backbone(name), shape)
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.paper("D3-09")
def test_layers_side_by_side_have_the_parameters_of_as_many_in_a_row() -> None:
    assert _parameters("deit3_h26x2") == _parameters("deit3_h52")


# Tokens with the class token, and millions of parameters: RelViT, table 1. It prints 22.5 million
# for the last two as well, which are the ViT-S/32's: a model with smaller patches has fewer.
@pytest.mark.paper("RV-20")
@pytest.mark.parametrize(
    ("name", "image_size", "tokens", "parameters"),
    [
        ("vit_s4", 32, 65, 21.3),
        ("vit_s8", 64, 65, 21.4),
        ("vit_s32", 224, 50, 22.5),
        ("vit_s16", 224, 197, 21.7),
        ("vit_s14", 224, 257, 21.6),
    ],
)
def test_the_models_of_relvit_have_the_sizes_of_its_table(
    name: str, image_size: int, tokens: int, parameters: float
) -> None:
    shape = ModelShape(channels=3, classes=10, image_size=image_size)
    with torch.device("meta"):
        model = build(catalogue.backbone(name), shape)
        found = model.forward_features(torch.zeros(1, 3, image_size, image_size))
    assert found.shape == (1, tokens, 384)
    assert len(model.blocks) == 12 and {block.attn.num_heads for block in model.blocks} == {6}
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    assert millions == pytest.approx(parameters, abs=0.06)


@pytest.mark.paper("CA-07")
@pytest.mark.parametrize(("name", "depth"), [("cait_s24", 24), ("cait_s36", 36), ("cait_s48", 48)])
def test_the_drop_path_of_a_cait_s_grows_with_its_depth_by_the_texts_formula(
    name: str, depth: int
) -> None:
    # Section 3.5.2 of the thesis, which prints `min` for `max`.
    rate = catalogue.backbone(name).args["drop_path_rate"]
    assert rate == pytest.approx(max(0.1 * (depth / 12 - 1), 0.0))


@pytest.mark.paper("DE-06")
@pytest.mark.parametrize("name", ["deit_ti", "deit_s_scaled", "vit_s16"])
def test_linear_weights_of_a_vision_transformer_start_normal_with_a_deviation_of_a_fiftieth(
    name: str,
) -> None:
    torch.manual_seed(0)
    backbone = catalogue.backbone(name)
    model = build(backbone, ModelShape(channels=3, classes=10, image_size=32))
    for block in model.blocks:
        for layer in (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2):
            assert float(layer.weight.std()) == pytest.approx(0.02, rel=0.03)
            assert float(layer.weight.mean()) == pytest.approx(0.0, abs=5e-4)
            assert layer.bias is None or not layer.bias.any()


def small(name: str, *, size: int, channels: int = 1) -> nn.Module:
    shape = ModelShape(channels=channels, classes=10, image_size=size)
    return build(make_backbone(name, **SMALL[name]), shape)


@pytest.mark.paper("DR-08", "PC-01")
@pytest.mark.parametrize("name", SMALL)
def test_the_token_grid_is_a_sixteenth_of_the_image_a_side(name: str) -> None:
    model = small(name, size=64).eval()
    grid = token_grid(model, model.forward_features(torch.randn(2, 1, 64, 64)))
    assert grid.shape == (2, 4, 4, 384)


@pytest.mark.paper("PC-02")
@pytest.mark.parametrize("name", SMALL)
def test_every_trained_weight_gets_a_gradient_and_no_other(name: str) -> None:
    torch.manual_seed(0)
    model = small(name, size=32)
    F.cross_entropy(model(torch.randn(2, 1, 32, 32)), torch.tensor([1, 2])).backward()
    for label, weight in model.named_parameters():
        assert (weight.grad is not None) == weight.requires_grad, label


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_draws_the_same_weights(name: str) -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(7)
        states.append(small(name, size=32).state_dict())
    assert all(torch.equal(states[0][label], states[1][label]) for label in states[0])


def test_performer_attention_is_the_normalised_kernel_of_its_features() -> None:
    torch.manual_seed(0)
    layer = PerformerLayer(12, 8).double().eval()
    tokens = torch.randn(2, 5, 12, dtype=torch.float64)
    key, query, value = layer.kqv(layer.norm1(tokens)).chunk(3, dim=-1)

    def feature(x: Tensor) -> Tensor:
        rows = [torch.exp(weight @ x - x @ x / 2) / math.sqrt(4) for weight in layer.features]
        return torch.stack(rows)

    expected = torch.zeros_like(value)
    for image in range(2):
        for i in range(5):
            scores = torch.stack(
                [feature(query[image, i]) @ feature(key[image, j]) for j in range(5)]
            )
            expected[image, i] = (scores[:, None] * value[image]).sum(0) / (
                scores.sum() + PERFORMER_EPS
            )
    mixed = value + layer.proj(expected)
    expected = mixed + layer.mlp(layer.norm2(mixed))
    assert torch.allclose(layer(tokens), expected, rtol=1e-5, atol=1e-5)


def test_performer_features_are_orthogonal_rows_of_length_root_m() -> None:
    features = PerformerLayer(20, 64).features
    assert torch.allclose(features @ features.T, 32.0 * torch.eye(32), atol=1e-4)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_performer_attention_stays_finite_in_half_precision(precision: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = PerformerLayer(147, 64).eval()
    with torch.no_grad():
        layer.kqv.weight.mul_(20)
    with torch.autocast("cpu", dtype=precision):
        assert torch.isfinite(layer(torch.randn(2, 49, 147))).all()


def test_positions_are_sines_and_cosines_in_turn() -> None:
    table = sinusoids(5, 6)
    for position in range(5):
        for index in range(6):
            angle = position / 10000 ** (2 * (index // 2) / 6)
            expected = math.cos(angle) if index % 2 else math.sin(angle)
            assert table[position, index].item() == pytest.approx(expected, abs=1e-6)


def test_the_official_attention_takes_the_class_token_past_the_convolutions_and_scales_by_the_whole_width() -> (
    None
):
    torch.manual_seed(0)
    layer = OfficialAttention(8, 2).eval()
    tokens = torch.randn(1, 1 + 16, 8)
    image = tokens[:, 1:].transpose(1, 2).unflatten(2, (4, 4))
    parts = []
    for conv, proj in (
        (layer.conv_q, layer.proj_q),
        (layer.conv_k, layer.proj_k),
        (layer.conv_v, layer.proj_v),
    ):
        parts.append(
            proj(torch.cat([tokens[:, :1], conv(image).flatten(2).transpose(1, 2)], dim=1))
        )
    query, key, value = parts
    assert key.shape[1] == 1 + 4, "keys are at half resolution"
    heads = []
    for start in (0, 4):
        one = slice(start, start + 4)
        weights = (query[..., one] @ key[..., one].transpose(1, 2) * 8**-0.5).softmax(-1)
        heads.append(weights @ value[..., one])
    assert torch.allclose(layer(tokens, (4, 4)), layer.proj(torch.cat(heads, -1)), atol=1e-6)


def test_the_other_variant_shares_the_convolution_of_keys_and_values_and_scales_by_the_heads_width() -> (
    None
):
    torch.manual_seed(0)
    layer = SharedAttention(8, 2).eval()
    image = torch.randn(1, 8, 4, 4)
    query = layer.to_q(image).flatten(2)
    key, value = (part.flatten(2) for part in layer.to_kv(image).chunk(2, dim=1))
    heads = []
    for start in (0, 4):
        one = slice(start, start + 4)
        weights = (query[:, one].transpose(1, 2) @ key[:, one] * 4**-0.5).softmax(-1)
        heads.append(weights @ value[:, one].transpose(1, 2))
    mixed = torch.cat(heads, -1).transpose(1, 2).unflatten(2, (4, 4))
    assert torch.allclose(layer(image), layer.to_out(mixed), atol=1e-6)


def test_the_other_variants_norm_adds_epsilon_outside_the_root() -> None:
    x = torch.randn(2, 3, 2, 2) * 1e-5
    column = x[0, :, 0, 0]
    expected = (column - column.mean()) / (column.std(correction=0) + 1e-5)
    assert torch.allclose(ChannelNorm(3)(x)[0, :, 0, 0], expected, atol=1e-6)


def test_the_models_that_vtjobs_declares_are_those_that_it_registers() -> None:
    ours = {
        name for name in timm.list_models() if "vtjobs" in timm.model_entrypoint(name).__module__
    }
    assert ours == OWN


@pytest.mark.paper("DE-06")
def test_the_starts_are_those_of_the_published_programs() -> None:
    torch.manual_seed(0)
    shape = ModelShape(channels=3, classes=10, image_size=224)
    vit = build(catalogue.backbone("vit_b16_drloc"), shape)
    assert float(vit.pos_embed.detach().std()) == pytest.approx(1.0, rel=0.02)
    for name in ("t2t_vit_14", "deit_ti", "vit_s32"):
        token = build(catalogue.backbone(name), shape).cls_token.detach()
        assert float(token.std()) == pytest.approx(0.02, rel=0.15), name
    stem = build(catalogue.backbone("cvt_13"), shape).embeds[0]
    assert float(stem.weight.detach().std()) == pytest.approx(1 / (3 * 147) ** 0.5, rel=0.05)
    deep = timm.create_model("patchconvnet_s120")
    assert float(deep.blocks[0].gamma[0].detach()) == pytest.approx(1e-6)


def test_a_class_token_start_needs_a_class_token() -> None:
    settings = BackboneSettings(model="resnet18", args={CLASS_TOKEN_STD: 0.02}, weights=None)
    with pytest.raises(BackboneError, match="it has no class token"):
        build(settings, ModelShape(channels=3, classes=10, image_size=32))


@pytest.mark.paper("PC-06")
@pytest.mark.parametrize(
    "name", ["t2t_vit_14", "cvt_13", "vit_b16_drloc", "patchconvnet_s60", "resmlp_s12"]
)
def test_a_recipes_drop_path_reaches_the_blocks(name: str) -> None:
    shape = ModelShape(channels=3, classes=10, image_size=224, drop_path=0.3)
    model = build(catalogue.backbone(name), shape)
    rates = [layer.drop_prob for layer in model.modules() if isinstance(layer, DropPath)]
    assert max(rates) == pytest.approx(0.3)


@pytest.mark.parametrize("name", sorted(OWN))
def test_an_argument_that_a_model_does_not_know_is_refused(name: str) -> None:
    settings = BackboneSettings(model=name, args={"widht": 3}, weights=None)
    with pytest.raises(BackboneError, match="widht"):
        build(settings, ModelShape(channels=3, classes=10, image_size=224))

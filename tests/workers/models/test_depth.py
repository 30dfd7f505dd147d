"""What each block adds, against blocks whose branches are known."""

from typing import Any

import pytest
import timm
import torch
from torch import nn

from vtjobs.jobs.errors import BadInput
from vtjobs.workers import models  # noqa: F401  registers ours with timm
from vtjobs.workers.models.depth import depth

SMALL = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 2}


def made(name: str, **arguments: Any) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=5, **{**SMALL, **arguments}).eval()


def images() -> torch.Tensor:
    return torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.paper("CA-06")
@torch.no_grad()
def test_a_block_adds_what_its_branches_compute() -> None:
    model, shown = made("vit_tiny_patch16_224"), images()
    found = depth(model, shown)
    assert [one.block for one in found] == [1, 2, 3]
    before = model.norm_pre(model._pos_embed(model.patch_embed(shown)))
    block = model.blocks[0]
    attention = block.attn(block.norm1(before))
    expected = (attention.norm(dim=-1) / before.norm(dim=-1)).mean()
    assert found[0].mixing == pytest.approx(float(expected), rel=1e-4)
    middle = before + attention
    mlp = block.mlp(block.norm2(middle))
    assert found[0].mlp == pytest.approx(
        float((mlp.norm(dim=-1) / middle.norm(dim=-1)).mean()), rel=1e-4
    )


@pytest.mark.parametrize(
    ("name", "arguments", "blocks"),
    [
        ("cait_xxs24_224", {}, 3),
        ("deit3_small_patch16_224", {}, 3),
        ("resmlp_s12", {"depth": None, "num_heads": None, "num_blocks": 2}, 2),
        (
            "swin_tiny_patch4_window7_224",
            {
                "img_size": 32,
                "depth": None,
                "depths": (1, 1),
                "num_heads": (1, 1),
                "window_size": 4,
            },
            2,
        ),
    ],
)
def test_every_family_with_two_branches_has_its_blocks(
    name: str, arguments: dict[str, Any], blocks: int
) -> None:
    torch.manual_seed(0)
    given = {key: value for key, value in {**SMALL, **arguments}.items() if value is not None}
    model = timm.create_model(name, num_classes=5, **given).eval()
    side = given["img_size"]
    found = depth(model, torch.rand(2, 3, side, side))
    assert [one.block for one in found] == list(range(1, blocks + 1))
    assert all(one.mixing and one.mlp and one.similarity is None for one in found)


@pytest.mark.paper("CA-01")
@torch.no_grad()
def test_layer_scale_makes_a_block_add_less() -> None:
    large, small = (
        depth(made("deit3_small_patch16_224", init_values=init), images()) for init in (1.0, 1e-3)
    )
    assert large[0].mixing == pytest.approx(1000 * small[0].mixing, rel=1e-2)
    assert large[0].mlp > 100 * small[0].mlp


@pytest.mark.paper("DE-15")
@torch.no_grad()
def test_the_two_tokens_of_a_distilled_network_are_compared_from_the_learned_ones_on() -> None:
    model, shown = made("deit_tiny_distilled_patch16_224"), images()
    nn.init.normal_(model.dist_token)
    nn.init.normal_(model.cls_token)
    found = depth(model, shown)
    assert [one.block for one in found] == [0, 1, 2, 3]
    cosine = torch.nn.functional.cosine_similarity
    learned = cosine(model.cls_token.flatten(), model.dist_token.flatten(), dim=0)
    assert (found[0].similarity, found[0].mixing) == (pytest.approx(float(learned)), None)
    last: list[torch.Tensor] = []
    model.blocks[-1].register_forward_hook(lambda *passed: last.append(passed[-1]))
    model(shown)
    expected = cosine(last[0][:, 0], last[0][:, 1], dim=1).mean()
    assert found[-1].similarity == pytest.approx(float(expected), abs=1e-5)


def test_a_network_without_such_blocks_is_refused() -> None:
    model = timm.create_model("resnet18", num_classes=5).eval()
    with pytest.raises(BadInput, match="--kind depth: ResNet has no blocks that normalise"):
        depth(model, torch.rand(2, 3, 32, 32))


def test_nothing_stays_on_the_network() -> None:
    model = made("vit_tiny_patch16_224")
    depth(model, images())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())

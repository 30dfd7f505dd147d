"""Backbones from timm, made as a run describes them, and their weights."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.settings import BackboneSettings, ModelShape, Weights
from vtjobs.jobs.values import changed
from vtjobs.workers.checkpoints.weights import load_weights, read_weights, start_from
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build

from ...support.training import VIT, differences, make_backbone, run_spec, weights_of


def _model(backbone: BackboneSettings, **recipe: Any) -> torch.nn.Module:
    spec = run_spec(backbone, **recipe)
    torch.manual_seed(0)
    return build(spec.backbone, spec.shape)


def test_what_timm_refuses_is_told_in_its_words() -> None:
    with pytest.raises(BackboneError, match=r"backbone resnet18: .*nonsense"):
        _model(make_backbone("resnet18", nonsense=1))


@pytest.mark.parametrize("argument", [{"stem_type": "deep"}, {"replace_stem_pool": True}])
def test_a_resnet_for_cifar_refuses_another_stem_than_its_own(argument: dict[str, Any]) -> None:
    with pytest.raises(
        BackboneError, match=r"its stem is fixed; leave out " + next(iter(argument))
    ):
        _model(make_backbone("resnet18_cifar", **argument))


def test_the_recipe_sets_dropout_and_drop_path() -> None:
    model = _model(VIT, dropout=0.3, drop_path=0.2)
    assert {layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout)} >= {0.3}
    rates = [layer.drop_prob for layer in model.modules() if type(layer).__name__ == "DropPath"]
    assert max(rates) == pytest.approx(0.2)


def test_the_small_backbones_of_the_catalogue_are_made_for_digits() -> None:
    for name in ("vit_mini", "swin_mini"):
        model = _model(catalogue.backbone(name))
        assert model(torch.zeros(1, 1, 16, 16)).shape == (1, 10)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_are_loaded_but_for_a_classifier_of_another_size(
    tmp_path: Path, suffix: str
) -> None:
    source = _model(VIT)
    state = {name: value.clone() for name, value in source.state_dict().items()}
    state["head.weight"], state["head.bias"] = torch.zeros(3, 16), torch.zeros(3)
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(state, str(path))
    else:
        torch.save({"model": state}, path)
    torch.manual_seed(1)
    target = run_spec(VIT)
    model = build(target.backbone, target.shape)
    assert load_weights(model, path) == ["head.bias", "head.weight"]
    kept = {
        name: value for name, value in weights_of(model).items() if not name.startswith("head.")
    }
    assert differences(kept, {name: state[name] for name in kept}) == []


def test_weights_of_another_backbone_are_an_error(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(3)}, str(tmp_path / "x.safetensors"))
    with pytest.raises(BackboneError, match="no tensor fits"):
        load_weights(_model(VIT), tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ["x.safetensors", "x.pth"])
def test_a_file_that_is_no_weights_file_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nonsense")
    with pytest.raises(BackboneError, match="weights"):
        read_weights(tmp_path / name)


def test_a_weights_file_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    (tmp_path / "x.pth").write_bytes(b"cos\nsystem\n(S'touch " + str(witness).encode() + b"'\ntR.")
    with pytest.raises(BackboneError):
        read_weights(tmp_path / "x.pth")
    assert not witness.exists()


@pytest.mark.paper("D3-04")
def test_an_even_drop_path_is_the_same_in_every_block() -> None:
    def rates(**recipe: Any) -> list[float]:
        model = _model(VIT, drop_path=0.2, **recipe)
        return [layer.drop_prob for layer in model.modules() if type(layer).__name__ == "DropPath"]

    assert rates() == [pytest.approx(0.2)] * 2
    assert rates(drop_path_rule="uniform") == [pytest.approx(0.2)] * 4
    assert not [
        layer
        for layer in _model(VIT, drop_path_rule="uniform").modules()
        if type(layer).__name__ == "DropPath"
    ]


CAIT = make_backbone("cait_xxs24_224", patch_size=4, embed_dim=16, depth=1, num_heads=2)
SWIN = catalogue.backbone("swin_mini")


@pytest.mark.paper("DE-10")
@pytest.mark.parametrize("backbone", [changed(VIT, args=VIT.args | {"patch_size": 4}), CAIT])
def test_positions_of_another_image_size_are_interpolated(
    tmp_path: Path, backbone: BackboneSettings
) -> None:
    small, large = _model(backbone, image_size=16), _model(backbone, image_size=32)
    prefix = small.pos_embed.shape[1] - 16
    # A plane over the grid is again one on the finer grid, but for its borders.
    rows = torch.arange(4.0).repeat_interleave(4)
    with torch.no_grad():
        small.pos_embed[0, prefix:] = rows[:, None]
    save_file(small.state_dict(), str(tmp_path / "small.safetensors"))
    assert load_weights(large, tmp_path / "small.safetensors") == []
    found = large.pos_embed[0, prefix:, 0].detach().view(8, 8)
    torch.testing.assert_close(
        found[2:6], (torch.arange(2.0, 6.0) / 2 - 0.25)[:, None].expand(4, 8), atol=0.1, rtol=0
    )


def test_relative_positions_of_another_window_are_interpolated(tmp_path: Path) -> None:
    small = _model(changed(SWIN, args=SWIN.args | {"window_size": 2}))
    large = _model(changed(SWIN, args=SWIN.args | {"window_size": 4}))
    save_file(small.state_dict(), str(tmp_path / "small.safetensors"))
    before = weights_of(large)["layers.0.blocks.0.attn.relative_position_bias_table"]
    load_weights(large, tmp_path / "small.safetensors")
    assert not torch.equal(
        before, weights_of(large)["layers.0.blocks.0.attn.relative_position_bias_table"]
    )


@pytest.mark.paper("RM-10")
def test_weights_that_are_tied_to_an_image_size_are_not_taken_for_another(tmp_path: Path) -> None:
    mixer = make_backbone("resmlp_s12", patch_size=4, embed_dim=16, num_blocks=1)
    save_file(_model(mixer, image_size=16).state_dict(), str(tmp_path / "small.safetensors"))
    with pytest.raises(
        BackboneError, match=r"linear_tokens.weight has shape 16x16, the backbone expects 64x64"
    ):
        load_weights(_model(mixer, image_size=32), tmp_path / "small.safetensors")


def test_the_authors_names_of_t2t_weights_are_ours(tmp_path: Path) -> None:
    """As their program saves them.

    An EMA's state beside the options of its command line, other names in two places.
    """
    small = make_backbone("t2t_vit_14", embed_dim=16, depth=1, num_heads=2)
    source = _model(small, image_size=32)
    renamed = {
        name.replace("patch_embed.", "tokens_to_token.").replace(".features", ".w"): value
        for name, value in source.state_dict().items()
    }
    assert "tokens_to_token.attention1.w" in renamed
    torch.save(
        {"state_dict_ema": renamed, "state_dict": {}, "args": argparse.Namespace(lr=1.0)},
        tmp_path / "t2t.pth",
    )
    torch.manual_seed(1)
    target = _model(small, image_size=32)
    loaded = start_from(target, Weights(fingerprint="sha256:0"), tmp_path / "t2t.pth")
    assert (loaded.drawn, loaded.unused) == ([], [])
    assert differences(weights_of(target), weights_of(source)) == []


@pytest.mark.parametrize(
    "name", ["t2t_vit_14", "cvt_13", "cvt_13_drloc", "patchconvnet_s60", "resmlp_s12", "deit_s"]
)
def test_a_classifier_of_other_classes_is_left_out_of_every_familys_weights(
    tmp_path: Path, name: str
) -> None:
    small = {"patchconvnet_s60": {"depth": 1}, "resmlp_s12": {"num_blocks": 1}}.get(name, {})
    if name in ("t2t_vit_14", "deit_s"):
        small = {"embed_dim": 16, "depth": 1, "num_heads": 2}
    known = catalogue.backbone(name)
    backbone = changed(known, args=known.args | small)
    source, target = (
        build(backbone, ModelShape(classes=classes, channels=3, image_size=32))
        for classes in (7, 3)
    )
    save_file(source.state_dict(), str(tmp_path / "weights.safetensors"))
    loaded = start_from(target, Weights(fingerprint="sha256:0"), tmp_path / "weights.safetensors")
    assert loaded.drawn == ["head.bias", "head.weight"]


@pytest.mark.paper("CA-07", "D3-04")
def test_an_even_drop_path_is_the_models_own_largest_where_none_is_given_and_spares_class_attention() -> (
    None
):
    def rates(name: str, **args: Any) -> list[float]:
        model = _model(make_backbone(name, **args), image_size=32, drop_path_rule="uniform")
        return [layer.drop_prob for layer in model.modules() if type(layer).__name__ == "DropPath"]

    assert rates("patchconvnet_s60", depth=3) == [pytest.approx(0.15)] * 3
    small = {"patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    assert rates("cait_xxs24_224", drop_path_rate=0.2, **small) == [pytest.approx(0.2)] * 2


@pytest.mark.parametrize("saved", [[1, 2], torch.zeros(3), {"model": {"epoch": 3}}])
def test_a_file_without_a_table_of_tensors_is_an_error(tmp_path: Path, saved: Any) -> None:
    torch.save(saved, tmp_path / "x.pth")
    with pytest.raises(BackboneError, match="not a dictionary of named tensors"):
        read_weights(tmp_path / "x.pth")


def test_weights_that_timm_cannot_adapt_are_an_error_in_its_words(tmp_path: Path) -> None:
    args = VIT.args
    plain = _model(make_backbone("deit_tiny_patch16_224", **args))
    save_file(plain.state_dict(), str(tmp_path / "plain.safetensors"))
    with pytest.raises(BackboneError, match="cannot be loaded into VisionTransformerDistilled"):
        load_weights(
            _model(make_backbone("deit_tiny_distilled_patch16_224", **args)),
            tmp_path / "plain.safetensors",
        )

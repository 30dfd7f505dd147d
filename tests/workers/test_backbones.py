"""Backbones from timm and the grid of tokens that each forms."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from vtjobs.jobs import library
from vtjobs.workers.backbones import BackboneError, build, load_weights, read_weights, token_grid
from vtjobs.workers.trainee import grid_shape

from ..support.training import CONVNET, VIT, differences, run_spec, weights_of

SWIN = {
    "model": "swin_tiny_patch4_window7_224",
    "args": {"patch_size": 2, "embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
}


def _model(backbone: dict[str, Any], **recipe: Any) -> torch.nn.Module:
    spec = run_spec(backbone, **recipe)
    torch.manual_seed(0)
    return build(spec.backbone, spec.dataset, spec.recipe)


@pytest.mark.parametrize(
    ("backbone", "size", "width", "grid"),
    [(VIT, 16, 16, (2, 2)), (VIT, 32, 16, (4, 4)), (CONVNET, 32, 8, (4, 4)), (SWIN, 16, 24, (4, 4))],
)
def test_a_backbones_grid_is_found_whatever_its_layout(
    backbone: dict[str, Any], size: int, width: int, grid: tuple[int, int]
) -> None:
    model = _model(backbone, image_size=size)
    before = weights_of(model)
    model.train()
    assert grid_shape(model, 1, size) == (width, grid)
    assert model.training and differences(weights_of(model), before) == []


@pytest.mark.parametrize("backbone", [VIT, CONVNET, SWIN])
def test_tokens_stand_where_their_pixels_are(backbone: dict[str, Any]) -> None:
    model = _model(backbone, image_size=32).eval()
    images = torch.zeros(1, 1, 32, 32)
    changed = images.clone()
    changed[:, :, 24:, :8] = 3.0
    with torch.no_grad():
        one, other = (token_grid(model, model.forward_features(each)) for each in (images, changed))
    gap = (one - other).square().sum(-1)[0]
    place = divmod(int(gap.argmax()), gap.shape[1])
    assert place[0] >= gap.shape[0] / 2 and place[1] < gap.shape[1] / 2


def test_class_tokens_are_no_part_of_the_grid() -> None:
    model = _model(VIT).eval()
    features = torch.randn(2, 5, 16)
    assert torch.equal(token_grid(model, features).flatten(1, 2), features[:, 1:])


@pytest.mark.parametrize("shape", [(2, 8, 16), (2, 16)])
def test_features_that_form_no_grid_are_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(BackboneError, match="grid"):
        token_grid(_model(VIT), torch.zeros(shape))


def test_what_timm_refuses_is_told_in_its_words() -> None:
    with pytest.raises(BackboneError, match=r"backbone resnet18: .*nonsense"):
        _model({"model": "resnet18", "args": {"nonsense": 1}})


def test_the_recipe_sets_dropout_and_drop_path() -> None:
    model = _model(VIT, dropout=0.3, drop_path=0.2)
    assert {layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout)} >= {0.3}
    rates = [layer.drop_prob for layer in model.modules() if type(layer).__name__ == "DropPath"]
    assert max(rates) == pytest.approx(0.2)


def test_the_small_backbones_of_the_catalogue_are_made_for_digits() -> None:
    for name in ("vit_mini", "swin_mini"):
        model = _model({"args": {}, **library.backbones()[name]})
        assert model(torch.zeros(1, 1, 16, 16)).shape == (1, 10)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_are_loaded_but_for_a_classifier_of_another_size(tmp_path: Path, suffix: str) -> None:
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
    model = build(target.backbone, target.dataset, target.recipe)
    assert load_weights(model, path) == ["head.bias", "head.weight"]
    kept = {name: value for name, value in weights_of(model).items() if not name.startswith("head.")}
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

"""A file of weights is loaded whole, or the grid names what is not."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from vtjobs.jobs.run.settings import BackboneSettings, ModelShape, Weights
from vtjobs.workers.checkpoints.weights import PROJECTOR, start_from
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build

from ...support.training import VIT

SHAPE = ModelShape(channels=3, classes=5, image_size=16)
TINY_NET = (Path(__file__).parents[3] / "docs" / "examples" / "tiny_net.py").read_text()


def _model(*, classes: int = 5, backbone: BackboneSettings = VIT) -> nn.Module:
    return build(backbone, ModelShape(channels=3, classes=classes, image_size=16))


def _state(**changes: Any) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {name: value.clone() for name, value in _model(**changes).state_dict().items()}


def _file(folder: Path, state: dict[str, Tensor]) -> Path:
    save_file(state, str(folder / "weights.safetensors"))
    return folder / "weights.safetensors"


def _allowed(**patterns: tuple[str, ...]) -> Weights:
    return Weights(fingerprint="sha256:0", **patterns)  # type: ignore[arg-type]


def test_a_whole_file_is_loaded_and_the_report_says_so(tmp_path: Path) -> None:
    state, model = _state(), _model()
    loaded = start_from(model, _allowed(), _file(tmp_path, state))
    assert (loaded.loaded, loaded.drawn, loaded.unused) == (len(state), [], [])
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "_orig_mod.", "ema."])
def test_what_programs_put_before_all_names_is_left_out(tmp_path: Path, prefix: str) -> None:
    state = _state()
    path = _file(tmp_path, {f"{prefix}{name}": value for name, value in state.items()})
    assert start_from(_model(), _allowed(), path).loaded == len(state)


@pytest.mark.parametrize("classes", [7, 0])
def test_a_classifier_of_other_classes_or_none_needs_no_word(tmp_path: Path, classes: int) -> None:
    loaded = start_from(_model(), _allowed(), _file(tmp_path, _state(classes=classes)))
    assert loaded.drawn == ["head.bias", "head.weight"]
    assert loaded.unused == (loaded.drawn if classes else [])


def test_a_removed_classifier_may_be_in_the_file(tmp_path: Path) -> None:
    model = _model()
    model.reset_classifier(0)  # type: ignore[operator]
    loaded = start_from(model, _allowed(), _file(tmp_path, _state()))
    assert loaded.unused == ["head.bias", "head.weight"]


@pytest.mark.paper("DR-37")
def test_a_tensor_that_the_file_lacks_must_be_named(tmp_path: Path) -> None:
    state = _state()
    del state["norm.weight"], state["norm.bias"]
    path, model = _file(tmp_path, state), _model()
    before = model.state_dict()["blocks.0.norm1.weight"].clone()
    with pytest.raises(BackboneError) as caught:
        start_from(model, _allowed(), path)
    assert "norm.bias, norm.weight are not in the file" in str(caught.value)
    assert "set allow_missing: [norm.*] beside weights" in str(caught.value)
    assert torch.equal(model.state_dict()["blocks.0.norm1.weight"], before), "nothing is half done"
    loaded = start_from(model, _allowed(allow_missing=("norm.*",)), path)
    assert loaded.drawn == ["norm.bias", "norm.weight"]


def test_a_tensor_that_the_model_lacks_must_be_named(tmp_path: Path) -> None:
    path = _file(tmp_path, _state() | {"projector.0.weight": torch.ones(2)})
    with pytest.raises(BackboneError, match=r"the file's projector\.0\.weight is no part"):
        start_from(_model(), _allowed(), path)
    loaded = start_from(_model(), _allowed(allow_unused=("projector.*",)), path)
    assert loaded.unused == ["projector.0.weight"]


def test_no_name_of_a_tensor_leaves_a_foreign_file_without_a_word(tmp_path: Path) -> None:
    for name in ("neck.projector.weight", f"head{PROJECTOR}weight"):
        path = _file(tmp_path, _state() | {name: torch.zeros(2)})
        if name.startswith("neck"):
            with pytest.raises(BackboneError, match=r"no part of the model"):
                start_from(_model(), _allowed(), path)
        else:
            # It lies in the classifier's place, whose weights need no word.
            assert start_from(_model(), _allowed(), path).unused == [name]


def test_half_of_the_blocks_is_never_taken_for_the_whole(tmp_path: Path) -> None:
    state = {name: value for name, value in _state().items() if not name.startswith("blocks.1.")}
    with pytest.raises(BackboneError, match=r"and 9 more are not in the file"):
        start_from(_model(), _allowed(), _file(tmp_path, state))


def test_averaged_weights_are_taken_before_others(tmp_path: Path) -> None:
    state = _state()
    averaged = {name: value + 1 for name, value in state.items()}
    torch.save({"model": state, "model_ema": averaged}, tmp_path / "both.pth")
    model = _model()
    start_from(model, _allowed(), tmp_path / "both.pth")
    assert torch.equal(model.state_dict()["norm.weight"], averaged["norm.weight"])


def test_a_backbone_of_ones_own_starts_from_a_file_as_any(tmp_path: Path) -> None:
    own = BackboneSettings(args={"width": 8}, model="tiny_net", weights=None, source=TINY_NET)
    state = _state(backbone=own)
    assert start_from(_model(backbone=own), _allowed(), _file(tmp_path, state)).drawn == []
    other = {**state, "classifier.weight": torch.ones(9, 8), "classifier.bias": torch.ones(9)}
    loaded = start_from(_model(backbone=own), _allowed(), _file(tmp_path, other))
    assert loaded.drawn == ["classifier.bias", "classifier.weight"]


def test_a_tensor_of_another_shape_may_be_named_and_is_refused_otherwise(tmp_path: Path) -> None:
    path = _file(tmp_path, {**_state(), "norm.weight": torch.ones(3)})
    with pytest.raises(BackboneError, match=r"norm\.weight has shape 3"):
        start_from(_model(), _allowed(), path)
    both = _allowed(allow_missing=("norm.weight",), allow_unused=("norm.weight",))
    assert start_from(_model(), both, path).drawn == ["norm.weight"]


def test_a_prefix_that_is_the_models_own_stays(tmp_path: Path) -> None:
    whole = nn.ModuleDict({"model": nn.Linear(2, 2)})
    path = _file(tmp_path, {name: value + 1 for name, value in whole.state_dict().items()})
    assert start_from(whole, _allowed(), path).loaded == 2


@pytest.mark.paper("DE-10")
def test_positions_of_a_larger_grid_keep_their_norm_better_than_bilinear_ones(
    tmp_path: Path,
) -> None:
    # Section 3.3.1 of the thesis: a vector between its neighbours loses norm where it is bilinear.
    torch.manual_seed(1)
    small, model = (
        build(VIT, ModelShape(channels=3, classes=5, image_size=size)) for size in (112, 192)
    )
    state = dict(small.state_dict())
    start_from(model, _allowed(), _file(tmp_path, state))
    assert isinstance(model.pos_embed, Tensor)
    before, after = (one[0, 1:].detach() for one in (state["pos_embed"], model.pos_embed))
    side, wider = math.isqrt(len(before)), math.isqrt(len(after))
    grid = before.T.reshape(1, -1, side, side)
    bilinear = F.interpolate(grid, size=(wider, wider), mode="bilinear", align_corners=False)
    norms = [float(one.norm(dim=-1).mean()) for one in (before, after, bilinear[0].flatten(1).T)]
    assert wider > side
    assert abs(norms[1] - norms[0]) < 0.6 * abs(norms[2] - norms[0])

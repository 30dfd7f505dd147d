"""What finished weights show: maps of images of the run's own dataset."""

import io
import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from vtjobs.jobs.documents import from_plain
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.pictures import Pictures
from vtjobs.jobs.run.settings import HeadSettings
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.workers.checkpoints.final_weights import NoWeights, final_of
from vtjobs.workers.checkpoints.manifest import STATE
from vtjobs.workers.checkpoints.weights import load_weights
from vtjobs.workers.models.backbones import build
from vtjobs.workers.tools.asked import Asked
from vtjobs.workers.tools.saliency import class_attention
from vtjobs.workers.tools.visualize import pictures

from ...support.tools import call_here
from ...support.training import CONVNET, VIT, make_backbone, run_spec
from .test_score import complete

Finished = tuple[Workspace, RunSpec]
OWN = """
import torch
from torch import nn

from vtjobs.workers.heads.relations import Relation


class Guess(nn.Module):
    def __init__(self, grids):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, grids, generator, places):
        return self.scale * grids[-1].mean(), {}

    def relations(self, grids, row, column):
        true = torch.arange(2.0)[:, None] + torch.arange(2.0)
        return (0, 0), [Relation("guess", grids[-1][..., 0], true)]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A ViT that was trained with DRLoc."""
    root = tmp_path_factory.mktemp("visualize")
    workspace, spec, _ = complete(root, run_spec(VIT, "drloc", epochs=1))
    return workspace, spec


def shown_of(finished: Finished, **asked: Any) -> Pictures:
    workspace, spec = finished
    return pictures(
        workspace, spec.run_id, Asked(**asked), data_root=workspace.root.parent, paths={}
    )


def test_images_are_spread_over_the_set_unless_they_are_named(finished: Finished) -> None:
    spread = shown_of(finished, kind="attention")
    assert [shown.title.split(":")[0] for shown in spread.shown] == [
        *("image 0", "image 224", "image 449", "image 673")
    ]
    (one,) = shown_of(finished, kind="attention", images=[5], set_name="train").shown
    assert one.title.startswith("image 5: class ")


def test_the_image_is_what_the_network_got(finished: Finished) -> None:
    (one,) = shown_of(finished, kind="attention", images=[3]).shown
    assert one.image is not None
    pixels = numpy.asarray(Image.open(io.BytesIO(one.image)))
    assert pixels.shape == (16, 16) and pixels.min() == 0 and pixels.max() > 200


@pytest.mark.paper("CA-17")
def test_attention_is_that_of_the_final_weights(finished: Finished) -> None:
    workspace, spec = finished
    found = shown_of(finished, kind="attention")
    titles = [panel.title for panel in found.shown[0].panels]
    assert titles == ["head 1", "head 2", "mean"]
    model = build(spec.backbone, spec.shape, spec.head)
    load_weights(model, final_of(workspace, spec.run_id).weights)
    png = found.shown[0].image
    assert png is not None
    plain = torch.tensor(numpy.asarray(Image.open(io.BytesIO(png)))).float()[None, None]
    mean, std = (torch.tensor(part)[0] * 255 for part in (spec.dataset.mean, spec.dataset.std))
    (layer,) = class_attention(model.eval(), (plain - mean) / std)
    for panel, head in zip(found.shown[0].panels, layer[0], strict=False):
        torch.testing.assert_close(torch.tensor(panel.values), head, atol=1e-4, rtol=1e-3)


def test_activation_is_shown_for_the_predicted_and_the_right_class(finished: Finished) -> None:
    for shown in shown_of(finished, kind="cam").shown:
        words = shown.title.replace(",", "").split()
        right, predicted = words[words.index("class") + 1], words[-1]
        expected = list(dict.fromkeys([predicted, right]))
        assert [panel.title.split()[1].rstrip(":") for panel in shown.panels] == expected
        assert all(panel.covers for panel in shown.panels)


def test_activation_of_named_classes_is_shown_in_their_order(finished: Finished) -> None:
    for shown in shown_of(finished, kind="cam", classes=[7, 2]).shown:
        assert [panel.title.split(":")[0] for panel in shown.panels] == ["class 7", "class 2"]


@pytest.mark.paper("DE-15", "CA-06")
def test_what_blocks_add_is_a_mean_over_64_images_or_those_that_are_named(
    finished: Finished,
) -> None:
    many, few = shown_of(finished, kind="depth"), shown_of(finished, kind="depth", images=(0, 1))
    assert [one.block for one in many.blocks] == [one.block for one in few.blocks]
    assert many.blocks and many.blocks != few.blocks and not many.shown


def test_relations_stand_beside_the_truth_in_its_colours(finished: Finished) -> None:
    (one,) = shown_of(finished, kind="relations", images=[0], point=(0.9, 0.1)).shown
    assert [panel.title for panel in one.panels] == [
        *("rows apart", "rows apart, true", "columns apart", "columns apart, true")
    ]
    predicted, true = one.panels[:2]
    assert (predicted.low, predicted.high) == (true.low, true.high) == (0, 0.5)
    assert true.values == [[0.5, 0.5], [0, 0]]
    # The lower left one of four patches.
    assert one.patch == (0, 0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"kind": "attention", "images": [898]}, "test has 898 images, 0 to 897"),
        ({"kind": "cam", "classes": [10]}, "--classes 10: digits has 10 classes, 0 to 9"),
        ({"kind": "filters"}, "mixes patches by no fixed weights"),
    ],
)
def test_what_is_not_there_is_refused(finished: Finished, asked: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        shown_of(finished, **asked)


def test_a_head_without_relations_is_refused(tmp_path: Path) -> None:
    workspace, spec, _ = complete(tmp_path, run_spec(CONVNET, epochs=1))
    with pytest.raises(BadInput, match="head supervised predicts no relations"):
        shown_of((workspace, spec), kind="relations")


def test_a_head_with_weight_0_has_learnt_nothing_to_show(tmp_path: Path) -> None:
    spec = run_spec(CONVNET, "drloc", params={"weight": 0.0}, epochs=1)
    workspace, spec, _ = complete(tmp_path, spec)
    with pytest.raises(BadInput, match="head drloc has weight 0 in this run"):
        shown_of((workspace, spec), kind="relations")


def test_a_head_whose_weights_were_deleted_shows_nothing(tmp_path: Path) -> None:
    workspace, spec, _ = complete(tmp_path, run_spec(CONVNET, "drloc", epochs=1))
    (final_of(workspace, spec.run_id).folder / STATE).unlink()
    with pytest.raises(NoWeights, match="`vtjobs gc` deletes them"):
        shown_of((workspace, spec), kind="relations")
    assert shown_of((workspace, spec), kind="cam").shown


def test_a_network_without_a_classifier_has_no_class_activation(tmp_path: Path) -> None:
    spec = run_spec(VIT, "relvit", params={"labels": False}, epochs=1)
    workspace, spec, _ = complete(tmp_path, spec)
    with pytest.raises(BadInput, match="no classifier, as it was trained without labels"):
        shown_of((workspace, spec), kind="cam")
    assert shown_of((workspace, spec), kind="relations").shown


def test_of_mega_patches_the_network_sees_what_it_was_evaluated_on(tmp_path: Path) -> None:
    backbone = VIT.__class__(model=VIT.model, args={**VIT.args, "patch_size": 4}, weights=None)
    spec = run_spec(backbone, "relvit", params={"labels": False, "mega": 2}, epochs=1)
    workspace, spec, _ = complete(tmp_path, spec)
    (one,) = shown_of((workspace, spec), kind="relations", images=[0]).shown
    assert one.image is not None
    assert Image.open(io.BytesIO(one.image)).size == (8, 8)


def test_the_command_of_the_worker_prints_the_document(finished: Finished) -> None:
    workspace, spec = finished
    words = ["--workspace", str(workspace.root), "--data", str(workspace.root), "--kind", "cam"]
    words += ["--images", "1", "2", "--classes", "--point", "0.5", "0.5", spec.run_id]
    done = call_here("visualize", *words)
    assert done.returncode == 0, done.stderr
    found = from_plain(json.loads(done.stdout), Pictures)
    assert found == shown_of(finished, kind="cam", images=[1, 2])


def test_a_head_of_the_lab_shows_what_it_predicts(tmp_path: Path) -> None:
    usual = {"weight": 1.0, "tokens": "after_norm", "blocks": "last"}
    spec = changed(
        run_spec(VIT, epochs=1), head=HeadSettings(name="Guess", params=usual, source=OWN)
    )
    workspace, spec, _ = complete(tmp_path, spec)
    (one,) = shown_of((workspace, spec), kind="relations", images=[0]).shown
    assert [panel.title for panel in one.panels] == ["guess", "guess, true"]
    assert one.panels[1].values == [[0, 1], [1, 2]]


@pytest.mark.paper("PC-15")
def test_classes_with_tokens_of_their_own_have_attention_of_their_own(tmp_path: Path) -> None:
    backbone = make_backbone("patchconvnet_s60", embed_dim=16, depth=1, class_tokens="per_class")
    workspace, spec, _ = complete(tmp_path, run_spec(backbone, epochs=1, image_size=32))
    (one,) = shown_of((workspace, spec), kind="attention", images=[3], classes=[2, 0]).shown
    assert [panel.title.split(":")[0] for panel in one.panels] == ["class 2", "class 0"]
    for panel in one.panels:
        assert sum(map(sum, panel.values)) == pytest.approx(1, abs=1e-4)


def test_a_token_that_classes_share_has_no_attention_for_one_of_them(finished: Finished) -> None:
    with pytest.raises(BadInput, match="all classes share the class token of vit_small"):
        shown_of(finished, kind="attention", classes=[1])

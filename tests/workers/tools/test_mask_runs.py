"""What the tools make of a finished run on masks: scores at several sizes, pictures, an export."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.pictures import Pictures
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.workers.checkpoints.final_weights import final_of
from vtjobs.workers.checkpoints.weights import load_weights
from vtjobs.workers.models.backbones import build
from vtjobs.workers.tools.asked import Asked
from vtjobs.workers.tools.export import export
from vtjobs.workers.tools.score import score
from vtjobs.workers.tools.visualize import pictures

from ...support.mask_images import mask_folder
from ...support.training import MASKED, VIT, on_masks, run_spec
from .test_export import FACTS
from .test_score import complete


class Segmented(NamedTuple):
    """A completed run on masks."""

    workspace: Workspace
    spec: RunSpec
    scores: dict[str, float]
    paths: dict[str, str]


@pytest.fixture(scope="module")
def segmented(tmp_path_factory: pytest.TempPathFactory) -> Segmented:
    root = tmp_path_factory.mktemp("segmented")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root))
        folder = mask_folder(root / "scenes", train=9, test=4)
        spec = on_masks(run_spec(VIT, **MASKED), folder)
    paths = {spec.dataset.fingerprint: str(folder)}
    workspace, spec, scores = complete(root, spec, paths=paths)
    return Segmented(workspace, spec, scores, paths)


def _scored(run: Segmented, **how: Any) -> dict[str, Any]:
    return score(
        run.workspace,
        run.spec.run_id,
        ["test"],
        data_root=run.workspace.root,
        paths=run.paths,
        **how,
    )


def test_the_scores_are_those_of_the_last_epoch(segmented: Segmented) -> None:
    assert _scored(segmented)["test"] == segmented.scores


def test_several_sizes_are_a_set_of_their_own(segmented: Segmented) -> None:
    found = _scored(segmented, scales=[0.5, 1.0])
    assert list(found) == ["test@scales0.5-1"]
    several = found["test@scales0.5-1"]
    assert several.keys() == segmented.scores.keys()
    assert several["loss"] != segmented.scores["loss"]


def _shown(run: Segmented, **asked: Any) -> Pictures:
    return pictures(
        run.workspace,
        run.spec.run_id,
        Asked(**asked),
        data_root=run.workspace.root,
        paths=run.paths,
    )


def test_a_picture_has_the_mask_beside_what_is_predicted_and_where_they_differ(
    segmented: Segmented,
) -> None:
    found = _shown(segmented, kind="masks", images=[2])
    (shown,) = found.shown
    mask, given, wrong = (torch.tensor(panel.values) for panel in shown.panels)
    assert mask.shape == given.shape == wrong.shape
    assert set(mask.unique().tolist()) <= {-1.0, 0.0, 1.0, 2.0}
    known = mask >= 0
    assert torch.equal(wrong.bool(), (mask != given) & known)
    share = wrong.sum().item() / known.sum().item()
    assert shown.title == f"image 2: {100 * share:.1f} % of the pixels wrong"


def test_maps_of_classifiers_are_refused_with_the_kind_that_there_is(segmented: Segmented) -> None:
    with pytest.raises(BadInput, match=r"was trained on masks\. Set --kind masks"):
        _shown(segmented, kind="attention")


def test_the_cards_lines_load_the_exported_segmenter(segmented: Segmented, tmp_path: Path) -> None:
    workspace, spec = segmented.workspace, segmented.spec
    with pytest.raises(BadInput, match=r"none of timm's\. Set --format safetensors"):
        export(workspace, spec.run_id, tmp_path / "out", "timm", facts=FACTS)
    export(workspace, spec.run_id, tmp_path / "out", "safetensors", facts=FACTS)
    text = (tmp_path / "out" / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(code.replace("model.safetensors", str(tmp_path / "out" / "model.safetensors")), found)
    model = build(spec.backbone, spec.shape, spec.head)
    load_weights(model, final_of(workspace, spec.run_id).weights)
    images = torch.randn(1, 3, 16, 16)
    assert torch.equal(found["model"].eval()(images), model.eval()(images))

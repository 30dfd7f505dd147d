"""What the tools make of a finished run on objects: scores, pictures, an export."""

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

from ...support.object_images import object_folder
from ...support.training import VIT, WITH_OBJECTS, on_objects, run_spec
from .test_export import FACTS
from .test_score import complete

pytestmark = pytest.mark.training


class Detected(NamedTuple):
    """A completed run on objects."""

    workspace: Workspace
    spec: RunSpec
    scores: dict[str, float]
    paths: dict[str, str]


@pytest.fixture(scope="module")
def detected(tmp_path_factory: pytest.TempPathFactory) -> Detected:
    root = tmp_path_factory.mktemp("detected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root))
        folder = object_folder(root / "parts", train=10, test=4)
        spec = on_objects(run_spec(VIT, **{**WITH_OBJECTS, "lr": 5e-3}), folder)
    paths = {spec.dataset.fingerprint: str(folder)}
    workspace, spec, scores = complete(root, spec, paths=paths)
    return Detected(workspace, spec, scores, paths)


def test_the_scores_are_those_of_the_last_epoch(detected: Detected) -> None:
    found = score(
        detected.workspace,
        detected.spec.run_id,
        ["test"],
        data_root=detected.workspace.root,
        paths=detected.paths,
    )
    assert found["test"] == detected.scores


def _shown(run: Detected, **asked: Any) -> Pictures:
    return pictures(
        run.workspace,
        run.spec.run_id,
        Asked(**asked),
        data_root=run.workspace.root,
        paths=run.paths,
    )


def test_a_picture_has_the_objects_beside_what_is_found(detected: Detected) -> None:
    (shown,) = _shown(detected, kind="masks", images=[2]).shown
    objects, found = (torch.tensor(panel.values) for panel in shown.panels)
    assert objects.shape == found.shape
    assert set(objects.unique().tolist()) <= {-1.0, 0.0, 1.0} and (objects >= 0).any()
    number = int(shown.title.split(", ")[1].split()[0])
    assert shown.title == f"image 2: 2 objects, {number} found"


def test_maps_of_classifiers_are_refused_with_the_kind_that_there_is(detected: Detected) -> None:
    with pytest.raises(BadInput, match=r"was trained on objects\. Set --kind masks"):
        _shown(detected, kind="attention")


def test_the_cards_lines_load_the_exported_detector(detected: Detected, tmp_path: Path) -> None:
    workspace, spec = detected.workspace, detected.spec
    with pytest.raises(BadInput, match=r"on objects: .* Set --format safetensors"):
        export(workspace, spec.run_id, tmp_path / "out", "timm", facts=FACTS)
    export(workspace, spec.run_id, tmp_path / "out", "safetensors", facts=FACTS)
    text = (tmp_path / "out" / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(code.replace("model.safetensors", str(tmp_path / "out" / "model.safetensors")), found)
    model = build(spec.backbone, spec.shape, spec.head)
    load_weights(model, final_of(workspace, spec.run_id).weights)
    images, sizes = torch.randn(1, 3, 32, 32), [(32, 32)]
    (mine,), (theirs,) = model.eval()(images, sizes), found["model"].eval()(images, sizes)
    assert torch.equal(mine.boxes, theirs.boxes) and torch.equal(mine.scores, theirs.scores)

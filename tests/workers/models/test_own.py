"""A lab's own backbone, made and trained from the source that came with the run."""

from pathlib import Path

import pytest
import torch

from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.run.settings import BackboneSettings, ModelShape
from vtjobs.jobs.run.spec import RunSpec, canonical, seeds_of
from vtjobs.workers.models.backbones import build
from vtjobs.workers.own_parts import OwnPartError

from ...support.training import newest, training

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SOURCE = (EXAMPLES / "tiny_net.py").read_text()
SHAPE = ModelShape(channels=1, classes=7, image_size=16, dropout=0.25)


def _backbone(source: str = SOURCE, **args: object) -> BackboneSettings:
    return BackboneSettings(args=args, model="tiny_net", weights=None, source=source)


def test_it_gets_the_grids_arguments_and_of_vtjobs_those_that_it_takes() -> None:
    model = build(_backbone(width=32), SHAPE)
    assert model.num_features == 32
    assert model.classifier.out_features == 7  # type: ignore[union-attr]
    assert model.body[0].in_channels == 1  # type: ignore[index]
    assert model.dropout.p == 0.25  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return None", "must make a torch.nn.Module"),
        ("return nn.Linear(1, 1)", "has no method forward_features and forward_head"),
    ],
)
def test_what_is_no_model_is_told(body: str, says: str) -> None:
    source = f"from torch import nn\ndef tiny_net(num_classes): {body}\n"
    with pytest.raises(OwnPartError, match=says):
        build(_backbone(source), SHAPE)


def test_what_its_function_raises_is_raised_with_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        build(_backbone("def tiny_net(num_classes):\n    return 1 / 0\n"), SHAPE)
    assert caught.traceback[-1].lineno + 1 == 2
    assert caught.traceback[-1].path == "<backbone tiny_net>"


@pytest.mark.parametrize("head", ["supervised", "drloc"])
def test_own_backbone_and_dataset_train_together_and_come_back_from_a_checkpoint(
    tmp_path: Path, head: str
) -> None:
    for name in ("tiny_net.py", "spots.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    (tmp_path / "grid.yaml").write_text("""\
name: own
backbones: ["tiny_net.py:tiny_net": {width: 16}]
datasets: ["spots.py:Spots": {classes: 4, train: 200, test: 100}]
heads: [supervised, drloc: {weight: 0.5}]
seeds: 1
recipe: quickstart
train: {epochs: 2, warmup_epochs: 0, image_size: 16}
""")
    cells = {
        cell.labels["head"]: cell for cell in take_in(str(tmp_path / "grid.yaml")).expansion.cells
    }
    text = cells[head].spec.text(seeds=canonical(seeds_of(0)), init_from=None)
    spec = RunSpec.parse(text)
    run = training(spec, tmp_path / "run")
    assert run.run()
    last = newest(tmp_path / "run", spec.run_id)
    again = training(spec, tmp_path / "again", resume=last)
    for one, other in zip(run.trainee.parameters(), again.trainee.parameters(), strict=True):
        assert torch.equal(one, other)

"""Half precision changes the losses of every head by rounding alone."""

from pathlib import Path
from typing import Any

import pytest
import torch

from vtjobs.jobs.grid.heads import HEADS
from vtjobs.jobs.run.settings import BackboneSettings

from ...support.training import CONVNET, VIT, run_spec, training

# Of a loss, relative to float32: a few of the roundings of 8 and of 11 bits.
BOUNDS = {"bf16": 2**-6, "fp16": 2**-9}
# Distillation's loss needs a trained teacher; it is the cross entropy of the supervised head.
TRAINED_ALONE = [name for name in HEADS if name != "distill"]
# A CPU multiplies matrices of fp16 slowly, and grafit's are wide by themselves.
SMALL = {"grafit": {"dim": 16}}


def _losses(folder: Path, backbone: BackboneSettings, head: str, precision: str) -> dict[str, Any]:
    """Return the sums of the first step, with weights that make confident logits."""
    spec = run_spec(backbone, head, params=SMALL.get(head), precision=precision, epochs=1)
    run = training(spec, folder)
    with torch.no_grad():
        for name, value in run.trainee.named_parameters():
            if value.dim() > 1 and "embed" not in name:
                value.mul_(3.0)
    run.trainee.train()
    run._one_step()
    return {name: float(value) for name, value in run.sums.values.items()}


@pytest.mark.paper("CA-10")
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("head", TRAINED_ALONE)
@pytest.mark.parametrize("backbone", [VIT, CONVNET], ids=["vit", "convnet"])
def test_the_losses_of_a_head_are_those_of_float32(
    tmp_path: Path, backbone: BackboneSettings, head: str, precision: str
) -> None:
    expected = _losses(tmp_path, backbone, head, "fp32")
    found = _losses(tmp_path, backbone, head, precision)
    losses = [name for name in expected if not name.endswith("top1")]
    assert {"loss", "knn_loss" if head == "grafit" else "cross_entropy"} <= set(losses)
    for name in losses:
        # Cosines between -1 and 1 may cancel out.
        least = BOUNDS[precision] * 0.1 * expected["examples"] if name == "instance_loss" else None
        bound = pytest.approx(expected[name], rel=BOUNDS[precision], abs=least)
        assert found[name] == bound, name

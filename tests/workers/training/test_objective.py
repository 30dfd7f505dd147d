"""The loss of a batch: what the recipe, a head and a teacher add to it."""

from typing import Any

import pytest
import torch
from timm.data.mixup import mixup_target
from torch.nn import functional as F

from vtjobs.workers.training.objective import Objective

from ...support.training import run_spec

DRAW = torch.Generator().manual_seed(0)
IMAGES = torch.rand(6, 1, 4, 4, generator=DRAW)
LOGITS = torch.randn(6, 5, generator=DRAW)
LABELS = torch.tensor([0, 1, 2, 3, 4, 0])


def _objective(mixed: bool = False, **recipe: Any) -> Objective:
    return Objective(run_spec(**recipe).recipe, mixed=mixed, distillation=None)


def _binary(targets: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy from its definition in float64.

    Mean over the classes, sum over the images.
    """
    p = LOGITS.double().sigmoid()
    return -(targets * p.log() + (1 - targets) * (1 - p).log()).mean(1).sum()


def test_cross_entropy_is_summed_over_the_images() -> None:
    total, parts = _objective(label_smoothing=0.1)(IMAGES, LOGITS, LABELS, None, 0.0)
    torch.testing.assert_close(total, F.cross_entropy(LOGITS, LABELS, label_smoothing=0.1) * 6)
    assert set(parts) == {"cross_entropy"}


def test_mixed_targets_are_smoothed_once() -> None:
    mixed = mixup_target(LABELS, 5, 0.3, 0.1)
    total, _ = _objective(mixed=True, label_smoothing=0.1, mixup=0.8)(
        IMAGES, LOGITS, mixed, None, 0.0
    )
    torch.testing.assert_close(total, -(mixed * LOGITS.log_softmax(1)).sum())


@pytest.mark.paper("D3-03")
def test_binary_cross_entropy_decides_each_class_by_itself() -> None:
    total, parts = _objective(loss="bce")(IMAGES, LOGITS, LABELS, None, 0.0)
    torch.testing.assert_close(total.double(), _binary(F.one_hot(LABELS, 5).double()))
    assert set(parts) == {"bce"}


@pytest.mark.paper("D3-03")
def test_binary_cross_entropy_takes_mixed_targets_as_they_are_or_above_a_threshold_as_one() -> None:
    mixed = mixup_target(LABELS, 5, 0.3)
    soft, _ = _objective(mixed=True, loss="bce", mixup=0.8)(IMAGES, LOGITS, mixed, None, 0.0)
    hard, _ = _objective(mixed=True, loss="bce", bce_threshold=0.2, mixup=0.8)(
        IMAGES, LOGITS, mixed, None, 0.0
    )
    torch.testing.assert_close(soft.double(), _binary(mixed.double()))
    torch.testing.assert_close(hard.double(), _binary((mixed > 0.2).double()))


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_heads_loss_counts_by_its_weight_for_each_image(weight: float) -> None:
    alone, _ = _objective()(IMAGES, LOGITS, LABELS, None, weight)
    total, _ = _objective()(IMAGES, LOGITS, LABELS, torch.tensor(2.0), weight)
    torch.testing.assert_close(total - alone, torch.tensor(weight * 2.0 * 6))


def test_without_a_classifier_the_heads_loss_is_all() -> None:
    total, parts = _objective()(IMAGES, None, LABELS, torch.tensor(2.0), 0.5)
    assert (float(total), parts) == (6.0, {})

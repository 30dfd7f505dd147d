"""The heads learn what they are for, on real digits, over three seeds."""

from pathlib import Path
from typing import Any

import pytest

from ...support.training import make_backbone, run_spec, training

pytestmark = pytest.mark.training

VIT = make_backbone("vit_small_patch16_224", patch_size=4, embed_dim=48, depth=2, num_heads=4)
RECIPE = {"epochs": 12, "batch_size": 64, "lr": 3e-3, "warmup_epochs": 1.0, "drop_last": True}


def _curve(folder: Path, head: str, metric: str, *, seed: int, **params: Any) -> list[float]:
    """Train and return a metric of the test split after every epoch, or of training where there is
    none.
    """
    told: list[dict[str, float]] = []

    def report(kind: str, **fields: Any) -> None:
        if kind in ("epoch", "evaluation") and metric in fields["metrics"]:
            told.append(fields["metrics"])

    assert training(
        run_spec(VIT, head, seed=seed, params=params, **RECIPE), folder, report=report
    ).run()
    return [metrics[metric] for metrics in told]


@pytest.mark.parametrize("seed", range(3))
def test_drlocs_error_falls_well_below_that_of_a_constant_answer(tmp_path: Path, seed: int) -> None:
    curve = _curve(tmp_path, "drloc", "train_drloc_l1", seed=seed, pairs=32, width=64, weight=1.0)
    # On a 4x4 grid the best constant answer (a quarter) is off by 0.1875 on average.
    assert curve[-1] < 0.15 < 0.17 < curve[0]


@pytest.mark.paper("RV-43")
@pytest.mark.parametrize("seed", range(3))
def test_without_labels_and_positions_the_relations_are_learnt_from_what_patches_look_like(
    tmp_path: Path, seed: int
) -> None:
    params = {"labels": False, "positions": False, "shuffle": True, "tasks": ["sprel"]}
    curve = _curve(tmp_path, "relvit", "sprel_top1", seed=seed, **params)
    # Chance is 1/9; always the most frequent relation is 14 %.
    assert curve[-1] > 30


@pytest.mark.paper("RV-33", "RV-43")
def test_with_positional_embeddings_and_without_shuffling_the_relations_are_read_off(
    tmp_path: Path,
) -> None:
    """Figure 4 of the paper: a shortcut, all right within a few epochs."""
    params = {"labels": False, "positions": True, "shuffle": False, "tasks": ["sprel"]}
    assert _curve(tmp_path, "relvit", "sprel_top1", seed=0, **params)[-1] > 99

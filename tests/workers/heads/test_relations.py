"""What heads say of patches, held against the losses that they are trained with."""

from typing import Any

import pytest
import torch
from torch import Tensor

from vtjobs.workers.heads.relations import patch_at

from . import test_drloc, test_relvit

GRID = (3, 4)
WIDTH = 6


def drloc(**params: Any) -> Any:
    return test_drloc.make(GRID, WIDTH, pairs=12, width=8, **params)


def tokens() -> Tensor:
    return test_drloc.tokens_of(2, *GRID, WIDTH, seed=3)


def one_with_all(row: int, column: int) -> list[Tensor]:
    """Return the pairs of each patch with one, as DRLoc's loss gets them."""
    every = torch.arange(12)
    one = torch.full_like(every, row * GRID[1] + column)
    return [torch.stack([every, one])[:, None].expand(-1, 2, -1)]


@pytest.mark.parametrize(
    ("loss", "offsets"),
    [("l1", "relative"), ("l1", "cells"), ("signed", "relative"), ("signed", "shifted")],
)
def test_drloc_predicts_what_its_loss_measures(loss: str, offsets: str) -> None:
    head = drloc(loss=loss, offsets=offsets)
    at, found = head.relations([tokens()], 0.4, 0.99)
    assert at == (1, 3)
    errors = [(one.predicted - one.true).abs().mean() for one in found]
    trained, _ = head([tokens()], one_with_all(1, 3))
    torch.testing.assert_close(torch.stack(errors).mean(), trained)


def test_of_classes_the_likeliest_offset_is_shown() -> None:
    head = drloc(loss="ce")
    (at, (rows, columns)) = head.relations([tokens()], 0.0, 0.0)
    assert at == (0, 0)
    assert rows.true.tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert columns.true.tolist() == [[0, 1, 2, 3]] * 3
    # A head that is sure of one class: two rows below, three columns to the right.
    (locate,) = head.locate
    for layer, side, offset in zip(locate.out, GRID, (2, 3), strict=True):
        torch.nn.init.zeros_(layer.weight)
        with torch.no_grad():
            layer.bias[locate._no_offset(side) + offset] = 50
    _, (rows, columns) = head.relations([tokens()], 0.0, 0.0)
    assert (rows.predicted == 2).all() and (columns.predicted == 3).all()


def test_of_a_posterior_its_mean_is_shown() -> None:
    head = drloc(loss="reg")
    (locate,) = head.locate
    torch.nn.init.zeros_(locate.out[0].weight)
    with torch.no_grad():
        for offset in (0, 1):
            locate.out[0].bias[locate._no_offset(GRID[0]) + offset] = 50
    _, (rows, _) = head.relations([tokens()], 0.5, 0.5)
    torch.testing.assert_close(rows.predicted, torch.full((2, *GRID), 0.5))


@pytest.mark.paper("RV-05")
@pytest.mark.parametrize("rank", ["full", "low"])
def test_relvit_predicts_what_its_metrics_measure(rank: str) -> None:
    head = test_relvit.make(
        GRID, WIDTH, rank=rank, pooling="none", tasks=["sprel", "dist", "ang", "abspos"]
    )
    _, metrics = head([tokens()], torch.Generator())
    found: dict[str, list[Tensor]] = {}
    for place in range(12):
        point = (place // 4 + 0.5) / GRID[0], (place % 4 + 0.5) / GRID[1]
        at, relations = head.relations([tokens()], *point)
        assert at == (place // 4, place % 4)
        for one in relations:
            found.setdefault(one.name, []).append(one.predicted - one.true)
    errors = {name: torch.stack(values) for name, values in found.items()}
    for name, metric in (("distance", "dist_mse"), ("angle", "ang_mse")):
        torch.testing.assert_close(errors[name].square().mean(), metrics[metric])
    right = 100 * (errors["direction"] == 0).float().mean()
    torch.testing.assert_close(right, metrics["sprel_top1"])
    both = (errors["row"] == 0) & (errors["column"] == 0)
    torch.testing.assert_close(100 * both.float().mean(), metrics["abspos_top1"])


def test_a_point_on_the_edge_lies_in_the_last_patch() -> None:
    assert patch_at(1.0, 1.0, 7, 5) == (6, 4)
    assert patch_at(0.0, 0.5, 7, 5) == (0, 2)

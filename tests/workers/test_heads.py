"""The heads against a plain float64 reading of their papers."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from vtjobs.workers.heads import DRLoc, RelViT, build_head, relation_labels

GRIDS = st.tuples(st.integers(2, 6), st.integers(2, 6))


def _tokens(batch: int, height: int, width: int, depth: int, seed: int) -> Tensor:
    return torch.randn(batch, height, width, depth, generator=torch.Generator().manual_seed(seed))


def _mlp(layers: nn.Sequential, value: list[float]) -> list[float]:
    """Apply linear, ReLU, linear, ReLU, linear by hand."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    for index, layer in enumerate(linear):
        weight, bias = layer.weight.double().tolist(), layer.bias.double().tolist()
        value = [sum(a * b for a, b in zip(row, value, strict=True)) + c for row, c in zip(weight, bias, strict=True)]
        if index < 2:
            value = [max(0.0, number) for number in value]
    return value


def _drloc(head: DRLoc, tokens: Tensor, generator: torch.Generator) -> float:
    """Read equation 1 and the pseudo-code: mean |target - prediction| over images, pairs and coordinates."""
    batch, height, width, _ = tokens.shape
    places = torch.randint(height * width, (2, batch, head.pairs), generator=generator).tolist()
    total = 0.0
    for image in range(batch):
        for pair in range(head.pairs):
            (i, j), (p, h) = (divmod(places[end][image][pair], width) for end in (0, 1))
            target = (abs(i - p) / height, abs(j - h) / width)
            joined = torch.cat([tokens[image, i, j], tokens[image, p, h]]).double().tolist()
            total += sum(abs(t - d) for t, d in zip(target, _mlp(head.mlp, joined), strict=True))
    return total / (batch * head.pairs * 2)


@settings(max_examples=25, deadline=None)
@given(grid=GRIDS, batch=st.integers(1, 3), pairs=st.integers(1, 5), seed=st.integers(0, 1000))
def test_drloc_is_equation_1_averaged_as_in_the_pseudo_code(
    grid: tuple[int, int], batch: int, pairs: int, seed: int
) -> None:
    torch.manual_seed(seed)
    head = DRLoc(3, {"weight": 0.5, "pairs": pairs, "width": 4, "grid": 7})
    tokens = _tokens(batch, *grid, 3, seed)
    loss, metrics = head(tokens, torch.Generator().manual_seed(seed))
    expected = _drloc(head, tokens, torch.Generator().manual_seed(seed))
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert float(metrics["drloc_l1"]) == loss.item()


def _relations(head: RelViT, z: list[list[list[float]]], height: int, width: int) -> float:
    """Read equations 5, 8 and 10 for a batch of token lists."""
    assert head.relation is not None
    weights = head.relation.double().tolist()
    total, count, depth = 0.0, height * width, head.width
    for image in z:
        for i in range(count):
            for j in range(count):
                rows, columns = i // width - j // width, i % width - j % width
                label = 3 * ((rows > 0) - (rows < 0) + 1) + (columns > 0) - (columns < 0) + 1
                scores = [
                    sum(image[i][a] * w[a][b] * image[j][b] for a in range(depth) for b in range(depth))
                    / math.sqrt(depth)
                    for w in weights
                ]
                total += math.log(sum(map(math.exp, scores))) - scores[label]
    return total / (len(z) * count**2)


def _positions(head: RelViT, z: list[list[list[float]]]) -> float:
    """Read equations 9 and 11 for a batch of token lists."""
    assert head.position is not None
    weight, bias = head.position.weight.double().tolist(), head.position.bias.double().tolist()
    total = 0.0
    for image in z:
        for i, token in enumerate(image):
            logits = [
                sum(a * b for a, b in zip(row, token, strict=True)) + c for row, c in zip(weight, bias, strict=True)
            ]
            total += math.log(sum(map(math.exp, logits))) - logits[i]
    return total / (len(z) * len(z[0]))


@settings(max_examples=15, deadline=None)
@given(
    grid=st.tuples(st.integers(2, 4), st.integers(2, 4)),
    batch=st.integers(1, 2),
    tasks=st.sampled_from([["sprel"], ["abspos"], ["sprel", "abspos"]]),
    seed=st.integers(0, 1000),
)
def test_relvit_is_equations_10_and_11_summed(grid: tuple[int, int], batch: int, tasks: list[str], seed: int) -> None:
    torch.manual_seed(seed)
    head = RelViT(3, grid, {"weight": 1.0, "tasks": tasks})
    if head.relation is not None:
        nn.init.normal_(head.relation)
    tokens = _tokens(batch, *grid, 3, seed)
    z = tokens.flatten(1, 2).double().tolist()
    expected = (_relations(head, z, *grid) if "sprel" in tasks else 0.0) + (
        _positions(head, z) if "abspos" in tasks else 0.0
    )
    loss, metrics = head(tokens, torch.Generator())
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert {f"{task}_top1" for task in tasks} == set(metrics) - {"relvit_loss"}


def test_relations_on_a_three_by_three_grid_are_those_seen_by_eye() -> None:
    labels = relation_labels(3, 3)
    above_left, above, above_right, left, same, right, below_left, below, below_right = range(9)
    centre = [above_left, above, above_right, left, same, right, below_left, below, below_right]
    # Where each patch lies as seen from the middle one.
    assert labels[:, 4].tolist() == centre
    # Where each lies as seen from the upper left corner, and the upper left corner as seen from each.
    seen_from_it = [same, right, right, below, below_right, below_right, below, below_right, below_right]
    assert labels[:, 0].tolist() == seen_from_it
    assert labels[0, :].tolist() == [same, left, left, above, above_left, above_left, above, above_left, above_left]


@given(grid=st.tuples(st.integers(1, 7), st.integers(1, 7)))
def test_seen_the_other_way_round_a_relation_is_its_opposite(grid: tuple[int, int]) -> None:
    labels = relation_labels(*grid)
    assert torch.equal(labels + labels.T, torch.full_like(labels, 8))
    assert labels.diagonal().unique().tolist() == [4]


@pytest.mark.parametrize("name", ["drloc", "relvit"])
@pytest.mark.parametrize("grid", [(2, 2), (3, 5), (7, 7)])
def test_the_gradient_reaches_every_token(name: str, grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    params: dict[str, Any] = {"weight": 1.0, "pairs": 2000, "width": 8, "grid": 7, "tasks": ["sprel", "abspos"]}
    head = build_head({"name": name, "params": params}, 6, grid)
    assert head is not None
    tokens = _tokens(2, *grid, 6, 1).requires_grad_()
    loss, _ = head(tokens, torch.Generator().manual_seed(0))
    loss.backward()
    assert tokens.grad is not None and bool((tokens.grad.abs().sum(-1) > 0).all())


def test_a_grid_of_14_by_14_is_averaged_down_to_7_by_7_for_drloc() -> None:
    torch.manual_seed(0)
    head = DRLoc(3, {"weight": 0.5, "pairs": 16, "width": 4, "grid": 7})
    tokens = _tokens(2, 14, 14, 3, 0)
    pooled = torch.stack([tokens[:, a::2, b::2] for a in (0, 1) for b in (0, 1)]).mean(0)
    loss, _ = head(tokens, torch.Generator().manual_seed(3))
    assert loss.item() == pytest.approx(_drloc(head, pooled, torch.Generator().manual_seed(3)), rel=1e-5)


@pytest.mark.parametrize("grid", [(7, 7), (4, 4), (10, 10), (8, 14)])
def test_a_grid_that_is_no_multiple_of_7_by_7_is_taken_as_it_is(grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    head = DRLoc(3, {"weight": 0.5, "pairs": 16, "width": 4, "grid": 7})
    tokens = _tokens(1, *grid, 3, 0)
    loss, _ = head(tokens, torch.Generator().manual_seed(3))
    assert loss.item() == pytest.approx(_drloc(head, tokens, torch.Generator().manual_seed(3)), rel=1e-5)


def test_drloc_draws_pairs_uniformly_and_may_draw_one_token_twice() -> None:
    head = DRLoc(1, {"weight": 0.5, "pairs": 4000, "width": 4, "grid": 7})
    seen: list[Tensor] = []
    head.mlp = nn.Sequential(nn.Identity())
    head.mlp.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    tokens = torch.arange(12.0).view(1, 3, 4, 1)
    head(tokens, torch.Generator().manual_seed(0))
    first, second = seen[0].T.long()
    counts = torch.bincount(first * 12 + second, minlength=144).double()
    # Chi-squared with 143 degrees of freedom: mean 143, standard deviation 16.9.
    assert float(((counts - 4000 / 144) ** 2 / (4000 / 144)).sum()) < 143 + 4 * 17
    assert int(counts.view(12, 12).diagonal().min()) > 0


@pytest.mark.parametrize("name", ["drloc", "relvit"])
def test_a_head_of_weight_zero_is_no_head(name: str) -> None:
    params = {"weight": 0, "pairs": 2, "width": 8, "grid": 7, "tasks": ["sprel"]}
    assert build_head({"name": name, "params": params}, 6, (2, 2)) is None

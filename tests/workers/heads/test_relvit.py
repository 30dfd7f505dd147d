"""RelViT against a plain float64 reading of its paper, equation by equation."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from vtjobs.workers.heads.relvit import (
    FullRank,
    LowRank,
    RelViT,
    angles,
    build,
    directions,
    distances,
)
from vtjobs.workers.models.tokens import Grid

from ...support.training import head_params
from .test_drloc import tokens_of

TASKS = ["sprel", "dist", "ang", "abspos"]
SUBSETS = [list(part) for count in range(1, 5) for part in itertools.combinations(TASKS, count)]
Matrix = list[list[float]]


def make(
    side: tuple[int, int], depth: int = 3, *, fidelity: str = "paper", **params: Any
) -> RelViT:
    head = build(
        [Grid(width=depth, height=side[0], columns=side[1])],
        head_params("relvit", fidelity, **params),
    )
    assert isinstance(head, RelViT)
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head


def matrices(head: RelViT) -> list[tuple[Matrix, float]]:
    """Return the D×D matrix of each score, and what its root divides by: eq.

    8, or queries and keys multiplied out.
    """
    if isinstance(head.scores, FullRank):
        return [(matrix.double().tolist(), float(head.width)) for matrix in head.scores.matrix]
    assert isinstance(head.scores, LowRank)
    queries = head.scores.queries.weight.double().split(head.scores.widths)
    keys = head.scores.keys.weight.double().split(head.scores.widths)
    return [((q.T @ k).tolist(), float(len(q))) for q, k in zip(queries, keys, strict=True)]


def score(matrix: Matrix, divisor: float, one: list[float], other: list[float]) -> float:
    depth = range(len(one))
    return sum(one[a] * matrix[a][b] * other[b] for a in depth for b in depth) / math.sqrt(divisor)


def by_hand(head: RelViT, z: list[Matrix], side: tuple[int, int]) -> float:
    """Equations 10, 12, 13 and 11 for a batch of token lists, summed."""
    found, count = 0.0, side[0] * side[1]
    scores = matrices(head) if head.scores is not None else []
    for image in z:
        for i, j in itertools.product(range(count), range(count)):
            rest = [score(*matrix, image[i], image[j]) for matrix in scores]
            for task in head.tasks:
                own, rest = (rest[:9], rest[9:]) if task == "sprel" else (rest[:1], rest[1:])
                found += pair_loss(task, own, i, j, side) / count**2
        if head.position is not None:
            weight, bias = (
                head.position.weight.double().tolist(),
                head.position.bias.double().tolist(),
            )
            for i, token in enumerate(image):
                logits = [
                    sum(a * b for a, b in zip(row, token, strict=True)) + c
                    for row, c in zip(weight, bias, strict=True)
                ]
                found += (math.log(sum(map(math.exp, logits))) - logits[i]) / count
    return found / len(z)


def pair_loss(task: str, scores: list[float], i: int, j: int, side: tuple[int, int]) -> float:
    (a, b), (p, q) = divmod(i, side[1]), divmod(j, side[1])
    if task == "sprel":
        label = 3 * ((a > p) - (a < p) + 1) + (b > q) - (b < q) + 1
        return math.log(sum(map(math.exp, scores))) - scores[label]
    if task == "dist":
        longest = math.hypot(side[0] - 1, side[1] - 1)
        return (scores[0] - (2 * math.hypot(a - p, b - q) / longest - 1)) ** 2
    return (scores[0] - (2 * angle((a, b), (p, q), side) / widest(side) - 1)) ** 2


def angle(one: tuple[int, int], other: tuple[int, int], side: tuple[int, int]) -> float:
    """Equation 7, with the published code's shift of half a side and floor of 1e-4."""
    if one == other:
        return 0.0
    (x, y), (u, v) = ((column + side[1] / 2, row + side[0] / 2) for row, column in (one, other))
    cosine = (x * u + y * v) / (math.hypot(x, y) * math.hypot(u, v) + 1e-4)
    return math.acos(max(-1.0, min(1.0, cosine)))


def widest(side: tuple[int, int]) -> float:
    cells = list(itertools.product(range(side[0]), range(side[1])))
    return max(angle(one, other, side) for one in cells for other in cells)


@pytest.mark.paper("RV-02", "RV-03", "RV-04", "RV-05", "RV-06", "RV-07", "RV-32")
@settings(max_examples=30, deadline=None)
@given(
    side=st.tuples(st.integers(2, 4), st.integers(2, 4)), batch=st.integers(1, 2), tasks=st.sampled_from(SUBSETS),
    seed=st.integers(0, 1000), fidelity=st.sampled_from(["paper", "code"]),
)  # fmt: skip
def test_the_loss_is_the_sum_of_the_tasks_equations(
    side: tuple[int, int], batch: int, tasks: list[str], seed: int, fidelity: str
) -> None:
    torch.manual_seed(seed)
    head = make(side, fidelity=fidelity, tasks=tasks)
    tokens = tokens_of(batch, *side, 3, seed)
    loss, metrics = head([tokens], torch.Generator())
    expected = by_hand(head, tokens.flatten(1, 2).double().tolist(), side)
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    names = {"sprel": "sprel_top1", "dist": "dist_mse", "ang": "ang_mse", "abspos": "abspos_top1"}
    assert set(metrics) == {"relvit_loss", *(names[task] for task in tasks)}


@pytest.mark.paper("RV-02")
def test_relations_on_a_three_by_three_grid_are_those_seen_by_eye() -> None:
    labels = directions(3, 3)
    above_left, above, above_right, left, same, right, below_left, below, below_right = range(9)
    centre = [above_left, above, above_right, left, same, right, below_left, below, below_right]
    # Where each patch lies as seen from the middle one.
    assert labels[:, 4].tolist() == centre
    # Where each lies as seen from the upper left corner, and the upper left corner as seen from
    # each.
    seen_from_it = [
        same,
        right,
        right,
        below,
        below_right,
        below_right,
        below,
        below_right,
        below_right,
    ]
    assert labels[:, 0].tolist() == seen_from_it
    assert labels[0, :].tolist() == [
        same,
        left,
        left,
        above,
        above_left,
        above_left,
        above,
        above_left,
        above_left,
    ]


@pytest.mark.paper("RV-02")
@given(side=st.tuples(st.integers(1, 7), st.integers(1, 7)))
def test_seen_the_other_way_round_a_relation_is_its_opposite(side: tuple[int, int]) -> None:
    labels = directions(*side)
    assert torch.equal(labels + labels.T, torch.full_like(labels, 8))
    assert labels.diagonal().unique().tolist() == [4]


@pytest.mark.paper("RV-03", "RV-04")
@pytest.mark.parametrize("of", [distances, angles])
@pytest.mark.parametrize("side", [(2, 2), (3, 5), (14, 14)])
def test_distances_and_angles_are_symmetric_and_fill_their_range(
    of: Any, side: tuple[int, int]
) -> None:
    found = of(*side)
    assert torch.isfinite(found).all()
    assert torch.equal(found, found.T)
    assert found.diagonal().unique().tolist() == [-1.0]
    assert (float(found.min()), float(found.max())) == (-1.0, 1.0)


@pytest.mark.parametrize(("side", "share"), [(4, 0.2578), (7, 0.2753), (8, 0.2780), (14, 0.2857)])
def test_the_widest_angle_is_the_published_codes(side: int, share: float) -> None:
    assert widest((side, side)) / math.pi == pytest.approx(share, abs=5e-5)


@pytest.mark.paper("RV-06", "RV-12")
@pytest.mark.parametrize(
    ("fidelity", "width", "parameters"),
    # Full: nine matrices. Low: two thirds of the published count, whose third, the values, is never
    # used.
    [
        ("paper", 384, 9 * 384 * 384),
        ("code", 384, 435_456 * 2 // 3),
        ("code", 768, 1_762_560 * 2 // 3),
    ],
)
def test_the_spatial_relations_have_no_dead_parameters(
    fidelity: str, width: int, parameters: int
) -> None:
    grid = Grid(width=width, height=7, columns=7)
    with torch.device("meta"):
        head = build([grid], head_params("relvit", fidelity, tasks=["sprel"]))
    assert sum(parameter.numel() for parameter in head.parameters()) == parameters


@pytest.mark.paper("RV-01")
@pytest.mark.parametrize("fidelity", ["paper", "code"])
@pytest.mark.parametrize("tasks", SUBSETS)
def test_every_parameter_and_token_gets_a_gradient(fidelity: str, tasks: list[str]) -> None:
    torch.manual_seed(0)
    head = make((3, 2), depth=10, fidelity=fidelity, tasks=tasks)
    tokens = tokens_of(2, 3, 2, 10, 0).requires_grad_()
    head([tokens], torch.Generator())[0].backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert tokens.grad is not None and bool((tokens.grad.abs().sum(-1) > 0).all())


@pytest.mark.paper("RV-10")
@settings(max_examples=20, deadline=None)
@given(tasks=st.sampled_from(SUBSETS), seed=st.integers(0, 1000))
def test_shuffling_the_tokens_and_telling_so_changes_no_loss(tasks: list[str], seed: int) -> None:
    torch.manual_seed(seed)
    head, tokens = make((3, 4), tasks=tasks), tokens_of(2, 3, 4, 3, seed)
    places = torch.rand(2, 12).argsort(1)
    moved = tokens.flatten(1, 2)[torch.arange(2)[:, None], places].view_as(tokens)
    plain, _ = head([tokens], torch.Generator())
    shuffled, _ = head([moved], torch.Generator(), places)
    assert shuffled.item() == pytest.approx(plain.item(), rel=1e-5)
    untold, _ = head([moved], torch.Generator())
    assert untold.item() != pytest.approx(plain.item(), rel=1e-5) or torch.equal(moved, tokens)


def test_labels_are_made_once_and_travel_with_the_head() -> None:
    head = make((3, 3), tasks=["sprel", "dist", "ang"])
    assert {name for name, _ in head.named_buffers()} == {
        "sprel_target",
        "dist_target",
        "ang_target",
        "place",
    }
    assert [name for name in head.state_dict() if "target" in name or name == "place"] == [], (
        "not in checkpoints"
    )


@pytest.mark.paper("RV-13")
def test_the_fine_grid_of_t2t_is_pooled_as_in_the_code_before_the_tasks() -> None:
    head = make((14, 14), pooling="overlapping", tasks=["abspos"])
    assert head.position is not None and head.position.out_features == 49
    loss, _ = head([tokens_of(1, 14, 14, 3, 0)], torch.Generator())
    assert torch.isfinite(loss)
    assert make((7, 7), pooling="overlapping", tasks=["abspos"]).position.out_features == 49  # type: ignore[union-attr]


@pytest.mark.paper("RV-07")
def test_the_order_of_the_tasks_and_a_repetition_decide_nothing() -> None:
    assert head_params("relvit", tasks=["abspos", "sprel", "sprel"]) == head_params(
        "relvit", tasks=["sprel", "abspos"]
    )

"""DRLoc against a plain float64 reading of its paper, equation by equation."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.heads import HEADS, preset
from vtjobs.workers.heads.base import build_head, weight_at
from vtjobs.workers.heads.drloc import DRLoc, Localization, build
from vtjobs.workers.models.tokens import Grid

from ...support.training import head_params, head_settings

SIDES = st.tuples(st.integers(2, 6), st.integers(2, 6))
LOSSES = ["l1", "signed", "ce", "reg"]


def tokens_of(batch: int, height: int, columns: int, depth: int, seed: int) -> Tensor:
    return torch.randn(batch, height, columns, depth, generator=torch.Generator().manual_seed(seed))


def head_on(grids: list[Grid], *, fidelity: str = "paper", **params: Any) -> DRLoc:
    made = build(grids, head_params("drloc", fidelity, **params))
    assert isinstance(made, DRLoc)
    return made


def make(side: tuple[int, int], depth: int = 3, *, fidelity: str = "paper", **params: Any) -> DRLoc:
    """Make a small head; `pairs` above the cells takes one of its two ways, below the other."""
    grid = Grid(width=depth, height=side[0], columns=side[1])
    return head_on([grid], fidelity=fidelity, **{"pairs": 5, "width": 4, **params})


def linear(layer: nn.Linear, value: list[float]) -> list[float]:
    rows, biases = layer.weight.double().tolist(), layer.bias.double().tolist()
    return [
        sum(a * b for a, b in zip(row, value, strict=True)) + c
        for row, c in zip(rows, biases, strict=True)
    ]


def told(head: Localization, one: Tensor, other: Tensor) -> list[list[float]]:
    """Apply table 15 by hand: linear, ReLU, linear, ReLU, linear (one or two of them)."""
    value = torch.cat([one, other]).double().tolist()
    for layer in (head.first, head.second):
        value = [max(0.0, number) for number in linear(layer, value)]
    if head.extra is not None:
        value = linear(head.extra, value)
    return [linear(layer, value) for layer in head.out if isinstance(layer, nn.Linear)]


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    shares = [math.exp(value - top) for value in values]
    return [share / sum(shares) for share in shares]


def coordinate_loss(
    kind: str, logits: list[float], offset: int, alpha: float, middle: int
) -> float:
    """Equations 5 and 6 for one coordinate; `middle` is the class of the offset 0."""
    posterior = softmax(logits)
    if kind == "ce":
        return -math.log(posterior[offset + middle])
    mean = sum(share * (place - middle) for place, share in enumerate(posterior))
    variance = (
        sum(share * (place - middle - mean) ** 2 for place, share in enumerate(posterior)) + 1e-8
    )
    return (offset - mean) ** 2 / variance + alpha * math.log(math.sqrt(variance))


def by_hand(head: DRLoc, tokens: Tensor, generator: torch.Generator) -> float:
    """Equations 2 (with 1), 3, 5 and 6.

    The mean over images and pairs, for 2 and 3 over the coordinates too.
    """
    (locate,) = head.locate
    assert isinstance(locate, Localization)
    batch, height, columns, _ = tokens.shape
    places = torch.randint(height * columns, (2, batch, locate.pairs), generator=generator).tolist()
    total = 0.0
    for image in range(batch):
        for pair in range(locate.pairs):
            (i, j), (p, h) = (divmod(places[end][image][pair], columns) for end in (0, 1))
            found = told(locate, tokens[image, i, j], tokens[image, p, h])
            if locate.kind in ("ce", "reg"):
                for logits, offset, cells in zip(
                    found, (i - p, j - h), (height, columns), strict=True
                ):
                    # The published program counts from the smallest offset, 1 - k.
                    middle = cells - 1 if locate.classes == "fixed" else len(logits) // 2
                    total += coordinate_loss(locate.kind, logits, offset, locate.alpha, middle)
                continue
            target = [float(i - p), float(j - h)]
            if locate.kind == "l1":
                target = [abs(value) for value in target]
            if locate.offsets == "shifted":
                target = [target[0] + height - 1, target[1] + columns - 1]
            if locate.offsets == "relative":
                target = [target[0] / height, target[1] / columns]
            total += sum(abs(t - d) for t, d in zip(target, found[0], strict=True)) / 2
    return total / (batch * locate.pairs)


@pytest.mark.paper("DR-01", "DR-02", "DR-03", "DR-04", "DR-20", "DR-21", "DR-22")
@settings(max_examples=40, deadline=None)
@given(
    side=SIDES, batch=st.integers(1, 3), pairs=st.integers(1, 40), seed=st.integers(0, 1000),
    loss=st.sampled_from(LOSSES), fidelity=st.sampled_from(["paper", "code"]),
)  # fmt: skip
def test_each_loss_is_what_its_equation_says(
    side: tuple[int, int], batch: int, pairs: int, seed: int, loss: str, fidelity: str
) -> None:
    torch.manual_seed(seed)
    head = make(side, fidelity=fidelity, pairs=pairs, loss=loss)
    tokens = tokens_of(batch, *side, 3, seed)
    found, metrics = head([tokens], torch.Generator().manual_seed(seed))
    assert found.item() == pytest.approx(
        by_hand(head, tokens, torch.Generator().manual_seed(seed)), rel=1e-4
    )
    assert float(metrics[f"drloc_{loss}"]) == found.item()


def test_the_program_has_27_classes_beside_all_backbones_but_swin() -> None:
    def classes(backbone: str, side: int) -> int:
        facts = catalogue.backbones()[backbone]
        chosen = preset("drloc", "code", facts, {"loss": "ce"})["classes"]
        return (
            make((side, side), fidelity="code", loss="ce", classes=chosen)
            .locate[0]
            .out[0]
            .out_features
        )

    assert [classes(name, 7) for name in ("swin_t", "t2t_vit_14", "resnet50_drloc")] == [13, 27, 27]


@pytest.mark.paper("DR-20")
def test_signed_offsets_of_the_program_start_at_zero() -> None:
    assert preset("drloc", "code", {}, {"loss": "signed"})["offsets"] == "shifted"
    assert preset("drloc", "code", {}, {"loss": "l1"})["offsets"] == "cells"
    assert preset("drloc", "paper", {}, {"loss": "signed"})["offsets"] == "relative"


def test_shifted_offsets_need_the_signed_loss() -> None:
    with pytest.raises(ValueError, match="offsets: shifted needs loss: signed"):
        HEADS["drloc"].model.model_validate({"offsets": "shifted"})


@pytest.mark.parametrize("loss", LOSSES)
def test_both_ways_of_the_first_layer_give_one_loss_and_one_gradient(loss: str) -> None:
    """Fewer cells than pairs: applied before the pairs are gathered; otherwise after."""
    found = []
    for cells_are_fewer in (True, False):
        torch.manual_seed(0)
        head = make((3, 3), pairs=10, loss=loss).double()
        tokens = tokens_of(2, 3, 3, 3, 1).double().requires_grad_()
        if not cells_are_fewer:
            head.locate[0].pairs = _Unlike(10)  # type: ignore[assignment]
        value, _ = head([tokens], torch.Generator().manual_seed(5))
        gradients = torch.autograd.grad(value, [tokens, *head.parameters()])
        found.append([value.detach().double(), *gradients])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-9)


class _Unlike(int):
    """A number of pairs that claims not to be more than the cells."""

    def __gt__(self, other: object) -> bool:
        return False


@pytest.mark.paper("DR-23")
def test_with_all_blocks_each_has_its_own_mlp_and_the_losses_are_summed() -> None:
    torch.manual_seed(0)
    shapes = [(4, 4, 3), (2, 2, 6)]
    head = head_on(
        [Grid(height=h, columns=w, width=d) for h, w, d in shapes],
        blocks="all",
        width=4,
    )
    tokens = [tokens_of(2, *shape, seed) for seed, shape in enumerate(shapes)]
    whole, _ = head(tokens, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    pairs = head.draw(2, generator)
    parts = [
        locate(grid, drawn) for locate, grid, drawn in zip(head.locate, tokens, pairs, strict=True)
    ]
    assert whole.item() == pytest.approx(sum(part.item() for part in parts))
    assert [locate.first.in_features for locate in head.locate] == [6, 12]  # type: ignore[union-attr]


@pytest.mark.parametrize("loss", ["ce", "reg"])
def test_the_programs_merged_stages_count_their_classes_by_the_grid_before(loss: str) -> None:
    """models/swin.py: out_dim is 56, 28, 14 and 7 at 224 pixels, the grids' sides 28, 14, 7, 7."""
    grids = [Grid(height=side, columns=side, width=4) for side in (28, 14, 7, 7)]
    head = head_on(grids, fidelity="code", blocks="stages", loss=loss, classes="tight", weight=0.5)
    classes = [locate.out[0].out_features for locate in head.locate]  # type: ignore[union-attr]
    assert classes == [2 * out_dim - 1 for out_dim in (56, 28, 14, 7)]
    # deltaxy += H - 1: two tokens in one place are of the class H - 1.
    first, *_, last = head.locate
    assert (first._no_offset(28), last._no_offset(7)) == (27, 6)  # type: ignore[operator]
    grids_of = [tokens_of(2, side, side, 4, side) for side in (28, 14, 7, 7)]
    found, _ = head(grids_of, torch.Generator().manual_seed(0))
    assert torch.isfinite(found)


@pytest.mark.paper("DR-22")
def test_the_regression_stays_finite_on_a_posterior_that_is_one_class() -> None:
    head = make((4, 4), loss="reg")
    locate = head.locate[0]
    for layer in locate.out:  # type: ignore[union-attr]
        nn.init.zeros_(layer.weight)
        layer.bias.data = torch.full_like(layer.bias, -1e4)
        layer.bias.data[0] = 1e4
    tokens = tokens_of(2, 4, 4, 3, 0).requires_grad_()
    loss, _ = head([tokens], torch.Generator().manual_seed(0))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(
        torch.isfinite(value.grad).all() for value in head.parameters() if value.grad is not None
    )


@pytest.mark.paper("DR-03")
@pytest.mark.parametrize(
    ("width", "parameters"), [(384, 657_410), (768, 1_050_626), (2048, 2_361_346)]
)
def test_the_head_has_as_many_parameters_as_the_published_one(width: int, parameters: int) -> None:
    head = head_on([Grid(width=width, height=7, columns=7)], width=512)
    assert sum(parameter.numel() for parameter in head.parameters()) == parameters


@pytest.mark.paper("DR-21")
@pytest.mark.parametrize(
    ("fidelity", "counts"), [("paper", [15, 15]), ("code", [27, 27])]
)  # 2k + 1 in the paper, 27 in the code
def test_offsets_are_told_apart_in_as_many_classes_as_the_preset_says(
    fidelity: str, counts: list[int]
) -> None:
    head = make((7, 7), fidelity=fidelity, loss="ce")
    assert [layer.out_features for layer in head.locate[0].out] == counts  # type: ignore[union-attr]


@pytest.mark.paper("DR-07")
def test_a_fine_grid_is_averaged_in_windows_or_as_the_code_does() -> None:
    tokens = tokens_of(2, 14, 14, 3, 0)
    windows = torch.stack([tokens[:, a::2, b::2] for a in (0, 1) for b in (0, 1)]).mean(0)
    paper, code = make((14, 14)), make((14, 14), fidelity="code")
    assert torch.allclose(paper.locate[0]._pooled(tokens), windows, atol=1e-6)  # type: ignore[operator]
    pooled = code.locate[0]._pooled(tokens)  # type: ignore[operator]
    assert pooled.shape == (2, 7, 7, 3)
    assert torch.allclose(pooled[:, 0, 0], tokens[:, :2, :2].mean((1, 2)), atol=1e-6), (
        "padding is not counted"
    )
    assert torch.allclose(pooled[:, 1, 1], tokens[:, 1:4, 1:4].mean((1, 2)), atol=1e-6)


@pytest.mark.parametrize("side", [(7, 7), (4, 4), (10, 10), (8, 14)])
def test_a_grid_that_is_no_multiple_of_7_by_7_is_taken_as_it_is(side: tuple[int, int]) -> None:
    tokens = tokens_of(1, *side, 3, 0)
    assert torch.equal(make(side).locate[0]._pooled(tokens), tokens)  # type: ignore[operator]


@pytest.mark.paper("DR-02", "DR-06")
def test_pairs_are_drawn_uniformly_and_may_be_one_token_twice() -> None:
    head = make((3, 4), depth=1, pairs=4000)
    seen: list[Tensor] = []
    locate = head.locate[0]
    locate._embedded = lambda tokens, places: seen.append(places) or torch.zeros(1, 4000, 4)  # type: ignore[assignment]
    head([torch.arange(12.0).view(1, 3, 4, 1)], torch.Generator().manual_seed(0))
    first, second = seen[0][:, 0]
    counts = torch.bincount(first * 12 + second, minlength=144).double()
    # Chi-squared with 143 degrees of freedom: mean 143, standard deviation 16.9.
    assert float(((counts - 4000 / 144) ** 2 / (4000 / 144)).sum()) < 143 + 4 * 17
    assert int(counts.view(12, 12).diagonal().min()) > 0


@pytest.mark.paper("DR-01")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("side", [(2, 2), (3, 5), (7, 7)])
def test_the_gradient_reaches_every_token(loss: str, side: tuple[int, int]) -> None:
    torch.manual_seed(0)
    head = make(side, depth=6, pairs=2000, loss=loss)
    tokens = tokens_of(2, *side, 6, 1).requires_grad_()
    value, _ = head([tokens], torch.Generator().manual_seed(0))
    value.backward()
    assert tokens.grad is not None and bool((tokens.grad.abs().sum(-1) > 0).all())


def test_a_weight_of_zero_throughout_is_no_head() -> None:
    grid = Grid(width=6, height=2, columns=2)
    assert build_head(head_settings("drloc", weight=0.0), [grid]) is None


def test_the_weight_is_constant_in_the_paper_and_rises_and_falls_in_the_code() -> None:
    paper = head_settings("drloc", weight=0.5)
    assert {weight_at(paper, epoch, 300) for epoch in range(300)} == {0.5}
    code = head_settings("drloc", "code", weight=0.5)
    assert weight_at(code, 0, 300) == 0
    assert weight_at(code, 10, 300) == pytest.approx(0.25)
    assert weight_at(code, 20, 300) == pytest.approx(0.5)
    # What the published program reaches in its last epoch, of 101 in a schedule of 300.
    assert weight_at(code, 100, 300) == pytest.approx(0.357, abs=5e-4)
    assert weight_at(code, 300, 300) == 0


@pytest.mark.paper("DR-07")
@pytest.mark.parametrize(
    ("backbone", "tokens", "init", "pooling"),
    [
        ("swin_t", "before_norm", "truncated_normal", "overlapping"),
        ("t2t_vit_14", "after_norm", "truncated_normal", "overlapping"),
        ("cvt_13_drloc", "after_norm", "torch", "overlapping"),
        ("vit_b16", "before_norm", "torch", "none"),
    ],
)
def test_what_the_paper_leaves_open_is_the_codes_for_each_backbone(
    backbone: str, tokens: str, init: str, pooling: str
) -> None:
    facts = catalogue.backbones()[backbone]
    paper, code = preset("drloc", "paper", facts), preset("drloc", "code", facts)
    assert (paper["tokens"], paper["init"]) == (code["tokens"], code["init"]) == (tokens, init)
    assert (paper["pooling"], code["pooling"]) == ("window", pooling)

"""Compiled training: one graph for every head, and a resumed run that is equal bit for bit."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from vtjobs.jobs.grid.heads import HEADS
from vtjobs.jobs.run.settings import BackboneSettings, HeadSettings
from vtjobs.jobs.values import changed
from vtjobs.workers.training.compiled import compiled
from vtjobs.workers.training.trainee import blank

from ...support.training import CONVNET, VIT, contents, differences, newest, run_spec, training

pytestmark = pytest.mark.training

TRAINED = [name for name in HEADS if name != "distill"]
LOSSES = ["l1", "signed", "ce", "reg"]
CASES = [(name, {}) for name in TRAINED] + [("drloc", {"loss": loss}) for loss in LOSSES]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace graphs as torch.compile does, and run them without a compiler: seconds, not minutes."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("backbone", [VIT, CONVNET], ids=["vit", "convnet"])
@pytest.mark.parametrize(("head", "params"), CASES)
def test_backbone_and_head_are_one_graph(
    tmp_path: Path, backbone: BackboneSettings, head: str, params: dict[str, Any]
) -> None:
    run = training(run_spec(backbone, head, params=params), tmp_path)
    shown = blank(run.trainee, run.spec, 4, torch.Generator().manual_seed(0), torch.device("cpu"))
    found = torch._dynamo.explain(run.trainee)(*shown)
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


def test_a_batch_of_another_size_compiles_nothing() -> None:
    sizes: list[int] = []

    def note(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        sizes.extend(len(given) for given in inputs if given.dim() == 2 and given.shape[1] == 3)
        return graph.forward

    model = torch.nn.Linear(3, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", partial(torch.compile, backend=note))
        call = compiled(model, {8, 7})
        for count in (8, 5, 7, 8, 5, 3, 7):
            images = torch.rand(count, 3)
            assert torch.equal(call(images), model(images))
    assert [size for size in sizes if size != 3] == [8, 7]


def test_a_compiled_run_is_resumed_exactly(tmp_path: Path, eager: None) -> None:
    """From the middle of an epoch, so that the short last batch comes at another step."""
    spec = run_spec(
        VIT, "drloc", epochs=2, virtual_ranks=2, compile=True, drop_path=0.2, dropout=0.1
    )
    whole = training(spec, tmp_path / "whole")
    assert whole.run()
    looks = iter([False, False, True, *[False] * 99])
    first = training(spec, tmp_path / "part", wants_stop=lambda: next(looks))
    assert not first.run()
    saved = newest(tmp_path / "part", spec.run_id)
    assert first.global_step == 3
    rest = training(spec, tmp_path / "rest", resume=saved)
    assert rest.run()
    places = [newest(tmp_path / name, spec.run_id) for name in ("whole", "rest")]
    one, other = (contents(place) for place in places if place is not None)
    assert differences(one, other) == []


DRAWS = """
import torch
from torch import nn

class Noisy(nn.Module):
    def __init__(self, grids):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(grids[-1].width))

    {draw}

    def forward(self, grids, draws, places):
        noise = {noise}
        loss = (grids[-1].mean((1, 2)) * self.scale - noise[:, None]).square().mean()
        return loss, {{}}
"""
BEFORE = "def draw(self, batch, generator): return torch.rand(batch, generator=generator)"


@pytest.mark.parametrize(
    ("draw", "noise", "breaks"),
    [(BEFORE, "draws", False), ("", "torch.rand(len(grids[-1]), generator=draws)", True)],
)
def test_a_labs_own_head_is_one_graph_if_it_draws_beforehand(
    tmp_path: Path, eager: None, draw: str, noise: str, breaks: bool
) -> None:
    """And trains to the same weights either way."""
    ends = []
    for source in (DRAWS.format(draw=draw, noise=noise), DRAWS.format(draw=BEFORE, noise="draws")):
        params = {"weight": 1.0, "tokens": "after_norm", "blocks": "last"}
        head = HeadSettings(name="Noisy", params=params, source=source)
        spec = changed(run_spec(VIT, compile=True, epochs=1), head=head)
        run = training(spec, tmp_path / str(len(ends)))
        assert run.run()
        ends.append(run.trainee.state_dict())
        if len(ends) == 1:
            draws = run.trainee.draw(4, torch.Generator().manual_seed(0))
            found = torch._dynamo.explain(run.trainee)(torch.rand(4, 1, 16, 16), draws, None)
            assert (found.graph_break_count > 0) == breaks
    assert differences(ends[0], ends[1]) == []

"""A lab's own head, trained from the source that came with the run."""

from pathlib import Path
from typing import Any

import pytest
import torch

from vtjobs.jobs.run.settings import HeadSettings
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.values import changed
from vtjobs.workers.heads.base import build_head, weight_at
from vtjobs.workers.models.tokens import Grid
from vtjobs.workers.own_parts import OwnPartError

from ...support.training import VIT, newest, run_spec, training

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "smooth_tokens.py"


def _head(source: str | None = None, **params: Any) -> HeadSettings:
    usual = {"weight": 1.0, "tokens": "after_norm", "blocks": "last"}
    return HeadSettings(
        name="SmoothTokens", params=usual | params, source=source or EXAMPLE.read_text()
    )


def _spec(**params: Any) -> RunSpec:
    return changed(run_spec(VIT), head=_head(**params))


def test_the_example_trains_and_reports_its_metric(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    run = training(_spec(width=8), tmp_path)
    run.report = lambda kind, **fields: told.append({"kind": kind, **fields})
    assert run.run()
    values = [event["metrics"]["train_smoothness"] for event in told if event["kind"] == "epoch"]
    assert len(values) == 2 and values[1] < values[0], "what it asks for is learnt"


def test_it_gets_its_own_arguments_and_not_the_weight(tmp_path: Path) -> None:
    made = build_head(_head(width=5, weight=0.25), [Grid(width=3, height=2, columns=2)])
    assert made is not None
    assert made.project.out_features == 5  # type: ignore[union-attr]
    assert weight_at(_head(width=5, weight=0.25), 0, 10) == 0.25


def test_a_resumed_run_takes_the_heads_weights_from_the_checkpoint(tmp_path: Path) -> None:
    spec = _spec()
    run = training(spec, tmp_path)
    assert run.run()
    last = newest(tmp_path, spec.run_id)
    again = training(spec, tmp_path / "again", resume=last)
    assert again.trainee.head is not None and run.trainee.head is not None
    for one, other in zip(
        again.trainee.head.parameters(), run.trainee.head.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_a_class_that_is_no_module_is_told() -> None:
    source = "class SmoothTokens:\n    def __init__(self, grids): pass\n"
    with pytest.raises(OwnPartError, match=r"must be a torch.nn.Module"):
        build_head(_head(source), [Grid(width=3, height=2, columns=2)])


def test_a_metric_may_be_a_number_and_cannot_take_the_name_of_one_of_ours(tmp_path: Path) -> None:
    source = EXAMPLE.read_text()
    number = changed(run_spec(VIT), head=_head(source.replace("loss.detach()", "1.5")))
    assert training(number, tmp_path / "number").run()
    taken = changed(run_spec(VIT), head=_head(source.replace('"smoothness"', '"loss"')))
    with pytest.raises(OwnPartError, match="'loss' is a reserved metric name"):
        training(taken, tmp_path / "taken").run()

"""The GPUs of the runs that one agent trains at a time."""

import pytest

from vtjobs.jobs.workspace.allocation import Allocation, Shape
from vtjobs.workers.agent.lanes import lanes_of


def dealt(monkeypatch: pytest.MonkeyPatch, visible: str, lanes: int, shape: Shape) -> list[str]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    allocation = Allocation(
        token="vtj-a", created_at=0.0, shape=shape, lanes=lanes, tasks=((),), data_root=""
    )
    return [",".join(lane.gpus) for lane in lanes_of(allocation)]


def shape(gpus: int = 1, per_gpu: int = 1) -> Shape:
    return Shape(backend="local", gpus=gpus, ranks=gpus, per_gpu=per_gpu)


def test_each_run_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dealt(monkeypatch, "4,5,6,7", 2, shape(gpus=2)) == ["4,5", "6,7"]


def test_runs_that_share_gpus_are_dealt_out_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dealt(monkeypatch, "4,5", 4, shape(per_gpu=2)) == ["4", "5", "4", "5"]
    assert dealt(monkeypatch, "4,5", 3, shape(per_gpu=2)) == ["4", "5", "4"]


def test_no_gpu_is_shared_by_more_runs_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dealt(monkeypatch, "4", 4, shape(per_gpu=2)) == ["4", "", "4", ""]
    assert dealt(monkeypatch, "4,5,6", 2, shape(per_gpu=2)) == ["4", "4"]


def test_runs_on_the_cpu_see_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dealt(monkeypatch, "0,1", 2, Shape(backend="local")) == ["", ""]

"""What the ranks of a run leave in their logs."""

import re
from functools import partial

import pytest

from vtjobs.jobs.run.spec import NUMERICS, CellSpec
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.workers.agent import orders
from vtjobs.workers.agent.attempt import HostedRun
from vtjobs.workers.agent.template_client import Forge
from vtjobs.workers.errors import WheelError
from vtjobs.workers.ranks.failure import classify
from vtjobs.workers.ranks.rank import check_wheel, memory_share

from ...support.grids import tiny_grid
from ...support.lab import Lab, serve

OURS = re.compile(r"(start|note|epoch|end) ")


def log_of(lab: Lab, hosted: HostedRun, rank: int = 0) -> list[str]:
    """Return vtjobs' own lines; libraries have their warnings there as well."""
    folder = lab.run(hosted.task.run_id).logs(hosted.task.attempt)
    lines = (folder / f"rank-{rank}.log").read_text().splitlines()
    return [line for line in lines if OURS.match(line)]


def words(lines: list[str]) -> list[str]:
    """Return how each line begins."""
    return [" ".join(line.split()[:2]) for line in lines]


def test_of_several_ranks_one_writes_the_lines(lab: Lab, forge: Forge) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", train="virtual_ranks: 2"))
    hosted = lab.host(lab.allocate([run_id], ranks=2), forge)
    serve(forge, hosted)
    lines = log_of(lab, hosted)
    assert words(lines) == ["start backbone", "epoch 1/2", "epoch 2/2", "end completed"]
    assert "  world size 2  epochs 2  attempt 1  from the beginning" in lines[0]
    assert log_of(lab, hosted, rank=1) == []


def test_a_resumed_attempt_names_where_it_goes_on_and_counts_on_from_there(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=40))
    hosted = lab.host(lab.allocate([run_id]), forge)
    serve(forge, hosted, until=lambda: hosted.position.get("step", 0) > 0)
    hosted.stop(AttemptState.PREEMPTED)
    serve(forge, hosted)
    first = log_of(lab, hosted)
    stopped = re.match(r"end  stopped at step (\d+) of \d+, checkpoint saved", first[-1])
    assert stopped
    lab.tick(start=False)
    again = lab.host(lab.allocate([run_id]), forge)
    serve(forge, again)
    second = log_of(lab, again)
    assert second[0].endswith(f"  attempt 2  resumed from step {stopped[1]} of attempt 1")
    epochs = [line.split()[1] for line in (*first, *second) if line.startswith("epoch ")]
    assert epochs == [f"{epoch}/40" for epoch in range(1, 41)]
    assert "  best of this attempt test top1 " in second[-1]


def test_with_little_shared_memory_a_run_trains_and_says_why_it_has_fewer_workers(
    lab: Lab, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "free_bytes", lambda: 1000)
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=1, train="pipeline: pil"))
    hosted = lab.host(lab.allocate([run_id]), forge)
    serve(forge, hosted)
    lines = log_of(lab, hosted)
    assert words(lines) == ["start backbone", "note 0", "epoch 1/1", "end completed"]
    assert "loader workers: each hands over 32.0 KiB at a time, and /dev/shm has 1000 B" in lines[1]


def test_a_run_that_fails_ends_with_the_class_of_its_failure(lab: Lab, forge: Forge) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", train="lr: 1.0e+30"))
    hosted = lab.host(lab.allocate([run_id]), forge)
    serve(forge, hosted)
    assert log_of(lab, hosted)[-1] == "end  failed: diverged"


def test_a_run_of_other_numerics_is_not_trained(
    lab: Lab, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result would have the name of another one: the id of a run says how it is computed."""
    before = partial(CellSpec, numerics=NUMERICS - 1)
    monkeypatch.setattr("vtjobs.jobs.grid.expand.CellSpec", before)
    (run_id,) = lab.submit(tiny_grid(seeds="1"))
    hosted = lab.host(lab.allocate([run_id]), forge)
    serve(forge, hosted)
    assert log_of(lab, hosted)[-1] == "end  failed: user_error"
    text = (lab.run(run_id).logs(1) / "rank-0.log").read_text()
    assert "Submit the grid again for new runs" in text


@pytest.mark.parametrize(("runs", "gib"), [(1, 15), (2, 7), (4, 3)])
def test_runs_that_share_a_gpu_get_equal_parts_of_what_their_contexts_leave(
    runs: int, gib: int
) -> None:
    assert memory_share(16 << 30, runs) * 16 == pytest.approx(gib)


def test_a_gpu_too_small_for_its_runs_is_told_by_them_as_out_of_memory_and_not_before() -> None:
    assert memory_share(2 << 30, 4) == pytest.approx(0.025)


def test_a_build_of_torch_without_kernels_for_the_gpu_is_told_with_one_that_has_them() -> None:
    with pytest.raises(WheelError) as caught:
        check_wheel("Tesla V100-SXM2-32GB", "7.0", ["sm_75", "sm_80", "sm_90"])
    assert str(caught.value) == (
        "this build of torch has no kernels for Tesla V100-SXM2-32GB (compute capability 7.0), only"
        " for sm_75, sm_80, sm_90. Run in the environment of vtjobs: pip install 'torch==2.7.1'"
        " 'torchvision==0.22.1'"
    )
    assert classify(caught.value) is FailureClass.SETUP_ERROR
    check_wheel("Tesla V100-SXM2-32GB", "7.0", ["sm_50", "sm_60", "sm_70"])

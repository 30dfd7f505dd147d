"""What runs use of what they asked for."""

import re
from typing import Any

import pytest

from vtjobs.jobs.run.selector import Selection
from vtjobs.jobs.workspace.journal import encode
from vtjobs.orchestrator.views.efficiency import Efficiency, efficiency
from vtjobs.orchestrator.views.runs import runs

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab


def used(**figures: float) -> dict[str, Any]:
    return {"usage": figures, "epoch": 1, "step": 8}


def of_all(lab: Lab) -> list[Efficiency]:
    return efficiency(lab.context, Selection())


def test_a_cell_has_the_median_of_its_runs_and_the_most_memory_of_any(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="3"))
    quiet_lab.tick()
    for run_id, speed in zip(runs, (100.0, 300.0, 200.0), strict=True):
        figures = used(images_per_s=speed, data_wait=speed / 1000, host_memory_bytes=int(speed))
        journal(quiet_lab, run_id, 1, started(), ended("completed", **figures))
    quiet_lab.tick()
    (cell,) = of_all(quiet_lab)
    assert (cell.runs, cell.images_per_s, cell.data_wait) == (3, 200.0, 0.2)
    assert cell.host_memory_bytes == 300
    assert cell.gpu_utilisation is None and cell.gpu_used_bytes is None


def test_cells_that_have_not_started_are_left_out(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="2"))
    assert of_all(quiet_lab) == []


def work(
    lab: Lab, run_id: str, *, hours: float, state: str = "completed", **figures: float
) -> None:
    """Write the journal of a run that has worked for so long."""
    begin = lab.context.clock() - 86400.0
    journal(lab, run_id, 1, started(), at=begin)
    kind, fields = ended(state, **used(**figures))
    with lab.run(run_id).journal(1, 0).open("ab") as stream:
        stream.write(encode({"seq": 2, "at": begin + 3600 * hours, "kind": kind, **fields}))


@pytest.fixture
def asked_for_a_day(quiet_lab: Lab) -> Lab:
    """A grid of two cells, of which each asked for 24 hours."""
    grid = tiny_grid(heads="[supervised, relvit]", seeds="1")
    quiet_lab.submit(re.sub("resources: {", "resources: {walltime: 24h, ", grid))
    quiet_lab.tick()
    return quiet_lab


def advice(lab: Lab) -> dict[str, list[str]]:
    return {cell.head: cell.advice for cell in of_all(lab)}


def run_ids(lab: Lab) -> list[str]:
    return [run.run_id for run in runs(lab.context, Selection())]


def test_a_short_walltime_is_advised_by_the_longest_allocation_of_the_whole_grid(
    asked_for_a_day: Lab,
) -> None:
    lab = asked_for_a_day
    first, second = run_ids(lab)
    work(lab, first, hours=1)
    lab.tick()
    assert advice(lab) == {"supervised": []}, "the other one may take the whole day"
    work(lab, second, hours=2)
    lab.tick()
    found = advice(lab)
    (sentence,) = found["supervised"]
    assert sentence.endswith("a shorter resources.walltime starts sooner")
    assert "asked for 1d00h and its longest allocation used 2h00m" in sentence
    assert found["relvit"] == [sentence]


def test_a_walltime_that_one_cell_needs_is_not_too_long_for_the_others(
    asked_for_a_day: Lab,
) -> None:
    lab = asked_for_a_day
    for run_id, hours in zip(run_ids(lab), (1, 20), strict=True):
        work(lab, run_id, hours=hours)
    lab.tick()
    assert advice(lab) == {"supervised": [], "relvit": []}


@pytest.mark.parametrize(
    ("hours", "figures", "said"),
    [
        (20, {"data_wait": 0.02, "gpu_utilisation": 0.9}, None),
        (20, {"data_wait": 0.71}, "71 % of training is spent waiting for data"),
        (20, {"gpu_utilisation": 0.05}, "the GPU is busy 5 % of the time"),
        # Of a minute nothing can be said.
        (0.01, {"data_wait": 0.9}, None),
    ],
)
def test_advice_names_what_was_measured(
    asked_for_a_day: Lab, hours: float, figures: dict[str, float], said: str | None
) -> None:
    lab = asked_for_a_day
    work(lab, run_ids(lab)[0], hours=hours, **figures)
    lab.tick()
    found = advice(lab)["supervised"]
    assert found == [] if said is None else found[0].startswith(said)


@pytest.mark.parametrize(
    ("shared", "said"),
    [(1, "(resources.per_gpu: 2)"), (8, "(resources.per_gpu: 16)"), (16, "on a smaller GPU")],
)
def test_of_a_gpu_that_is_mostly_idle_more_runs_may_share_as_many_as_are_allowed(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch, shared: int, said: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    resources = f"gpus_per_node: 1, per_gpu: {shared}"
    grid = tiny_grid(seeds="1").replace("gpus_per_node: 0", resources)
    (run_id,) = quiet_lab.submit(grid)
    quiet_lab.tick()
    work(quiet_lab, run_id, hours=2, gpu_utilisation=0.05)
    quiet_lab.tick()
    (cell,) = of_all(quiet_lab)
    assert (cell.gpus, cell.per_gpu) == (1, shared)
    assert cell.advice[0].endswith(said)


@pytest.mark.parametrize(
    ("train", "gpus", "is_advised"),
    [
        ("{pipeline: pil, auto_augment: rand-m9}", 1, True),
        ("{pipeline: pil, auto_augment: rand-m9}", 0, False),
        ("{pipeline: pil, flip: 0.5, crop: none}", 1, True),
        ("{pipeline: pil, flip: 0.0, crop: resized}", 1, True),
        # Then the GPU would have nothing to do.
        ("{pipeline: pil, flip: 0.0, crop: none}", 1, False),
        ("{pipeline: pil, auto_augment: trivial}", 1, False),
        ("{pipeline: hybrid, auto_augment: rand-m9}", 1, False),
        ("{pipeline: tensor}", 1, False),
    ],
)
def test_a_gpu_that_waits_for_pillow_is_advised_to_augment_by_itself(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch, train: str, gpus: int, is_advised: bool
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    grid = tiny_grid(seeds="1").replace("gpus_per_node: 0", f"gpus_per_node: {gpus}")
    (run_id,) = quiet_lab.submit(grid.replace("train: {", f"train: {{{train[1:-1]}, "))
    quiet_lab.tick()
    work(quiet_lab, run_id, hours=2, data_wait=0.5)
    quiet_lab.tick()
    (sentence,) = of_all(quiet_lab)[0].advice
    assert "more CPU cores" in sentence
    assert sentence.endswith("(train.pipeline: hybrid, which makes new runs)") is is_advised


def test_the_time_of_a_run_ends_with_its_last_sign_of_life(asked_for_a_day: Lab) -> None:
    lab = asked_for_a_day
    first, second = run_ids(lab)
    work(lab, first, hours=3)
    # It was lost a day ago, and nobody has noticed.
    journal(lab, second, 1, started(), at=lab.context.clock() - 86400.0)
    lab.tick()
    assert {cell.head: cell.run_s for cell in of_all(lab)} == {
        "supervised": pytest.approx(3 * 3600.0),
        "relvit": None,
    }

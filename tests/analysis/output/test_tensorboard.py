"""Curves as TensorBoard itself reads them."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from vtjobs.analysis.output import tensorboard
from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.run.selector import parse_selection

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab


@pytest.fixture
def scored_lab(quiet_lab: Lab) -> Lab:
    """Two cells of two seeds, each scored twice."""
    runs = quiet_lab.submit(tiny_grid(heads="[supervised, relvit]"))
    quiet_lab.tick()
    for number, run_id in enumerate(runs):
        lines = [scored(60.0 + number, epoch=1), scored(70.0 + number, epoch=2)]
        journal(quiet_lab, run_id, 1, started(), *lines, ended("completed"))
    quiet_lab.tick(start=False)
    return quiet_lab


def exported(lab: Lab, folder: Path, *words: str) -> tensorboard.Exported:
    selection = parse_selection(words, default_all=True)
    return tensorboard.write(lab.open().ledger, selection, folder)


def read(folder: Path, tag: str) -> list[tuple[int, float]]:
    found = EventAccumulator(str(folder))
    found.Reload()
    return [(event.step, round(event.value, 4)) for event in found.Scalars(tag)]


def test_each_run_has_a_folder_with_a_readable_name(scored_lab: Lab, tmp_path: Path) -> None:
    found = exported(scored_lab, tmp_path / "out")
    assert sorted(name.split("/", 1)[1] for name in found.runs) == [
        "digits/relvit/seed0",
        "digits/relvit/seed1",
        "digits/supervised/seed0",
        "digits/supervised/seed1",
    ]
    first = next(name for name in found.runs if name.endswith("supervised/seed0"))
    assert read(tmp_path / "out" / first, "test/top1") == [(1, 60.0), (2, 70.0)]


def test_beside_the_runs_of_a_cell_lies_their_mean_with_its_deviation(
    scored_lab: Lab, tmp_path: Path
) -> None:
    found = exported(scored_lab, tmp_path / "out", "head=supervised")
    (mean,) = found.means
    assert mean.endswith("digits/supervised/mean")
    assert read(tmp_path / "out" / mean, "test/top1") == [(1, 60.5), (2, 70.5)]
    assert read(tmp_path / "out" / mean, "test/top1_high") == [(1, 61.2071), (2, 71.2071)]
    assert read(tmp_path / "out" / mean, "test/top1_low") == [(1, 59.7929), (2, 69.7929)]


def test_a_second_export_replaces_the_first_and_nothing_else(
    scored_lab: Lab, tmp_path: Path
) -> None:
    run = exported(scored_lab, tmp_path / "out").runs[0]
    foreign = tmp_path / "out" / run / "events.out.tfevents.0.other"
    foreign.write_bytes(b"")
    exported(scored_lab, tmp_path / "out")
    files = list((tmp_path / "out" / run).iterdir())
    assert len(files) == 2 and foreign in files


def test_what_is_not_there_is_not_exported(scored_lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(NothingMatched):
        exported(scored_lab, tmp_path / "out", "head=drloc")
    assert not (tmp_path / "out").exists()

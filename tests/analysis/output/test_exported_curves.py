"""Curves as the programs that they are for read them themselves."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from vtjobs.analysis.output.curve_table import TableWriter
from vtjobs.analysis.output.exported_curves import Exported, Exporter, Writer, same, title
from vtjobs.analysis.output.mlflow import MLflowWriter
from vtjobs.analysis.output.tensorboard import TensorBoardWriter
from vtjobs.analysis.output.wandb_offline import WandbWriter
from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.orchestrator.requests.actions import retry

from ...support.grids import tiny_grid
from ...support.journals import OpenJournal, ended, journal, scored, started
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


def exporter(lab: Lab, writer: Writer, *words: str, follows: bool = False) -> Exporter:
    selection = parse_selection(words, default_all=True)
    return Exporter(lab.open().ledger, selection, writer, follows=follows)


def exported(lab: Lab, folder: Path, *words: str) -> Exported:
    return exporter(lab, TensorBoardWriter(folder), *words).write(str(folder))


def read(folder: Path, tag: str) -> list[tuple[int, float]]:
    found = EventAccumulator(str(folder))
    found.Reload()
    if tag not in found.Tags()["scalars"]:
        return []
    return [(event.step, round(event.value, 4)) for event in found.Scalars(tag)]


def named(names: Sequence[str], end: str) -> str:
    (found,) = (name for name in names if name.endswith(end))
    return found


# TensorBoard --------------------------------------------------------------------------------------


def test_each_run_has_a_folder_with_a_readable_name(scored_lab: Lab, tmp_path: Path) -> None:
    found = exported(scored_lab, tmp_path / "out")
    assert sorted(name.split("/", 1)[1] for name in found.runs) == [
        "digits/relvit/seed0",
        "digits/relvit/seed1",
        "digits/supervised/seed0",
        "digits/supervised/seed1",
    ]
    first = named(found.runs, "supervised/seed0")
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
    assert read(tmp_path / "out" / mean, "test/top1_seeds") == [(1, 2.0), (2, 2.0)]


def test_a_mean_says_on_how_many_seeds_each_epoch_rests(growing: "Growing", tmp_path: Path) -> None:
    (mean,) = exported(growing.lab, tmp_path).means
    assert read(tmp_path / mean, "test/top1_seeds") == [(1, 2.0), (2, 1.0)]


def test_a_second_export_replaces_the_first_and_nothing_else(
    scored_lab: Lab, tmp_path: Path
) -> None:
    run = exported(scored_lab, tmp_path / "out").runs[0]
    foreign = tmp_path / "out" / run / "events.out.tfevents.0.other"
    foreign.write_bytes(b"")
    exported(scored_lab, tmp_path / "out")
    files = list((tmp_path / "out" / run).iterdir())
    assert len(files) == 2 and foreign in files


def test_what_is_not_there_has_no_title_and_leaves_no_folder(scored_lab: Lab) -> None:
    with pytest.raises(NothingMatched):
        title(scored_lab.open().ledger, parse_selection(["head=drloc"]))


# Growing curves -----------------------------------------------------------------------------------


@dataclass
class Growing:
    """One cell of two seeds: one has both its epochs, the other one of them."""

    lab: Lab
    journals: list[OpenJournal]

    def end(self) -> None:
        one, other = self.journals
        one.write(ended("completed")).close()
        other.write(scored(71.0, epoch=2), ended("completed")).close()
        self.lab.tick(start=False)


@pytest.fixture
def growing(quiet_lab: Lab) -> Growing:
    one, other = quiet_lab.submit(tiny_grid(heads="[supervised]"))
    quiet_lab.tick()
    begun = [
        OpenJournal(quiet_lab, one, 1).write(started(), scored(60.0), scored(70.0, epoch=2)),
        OpenJournal(quiet_lab, other, 1).write(started(), scored(61.0)),
    ]
    quiet_lab.tick(start=False)
    return Growing(quiet_lab, begun)


def test_a_followed_curve_gets_what_is_new_and_nothing_twice(
    growing: Growing, tmp_path: Path
) -> None:
    follower = exporter(growing.lab, TensorBoardWriter(tmp_path), follows=True)
    found = follower.write(str(tmp_path))
    assert found.left == 2
    follower.write(str(tmp_path))
    late = tmp_path / named(found.runs, "seed1")
    assert read(late, "test/top1") == [(1, 61.0)]
    growing.end()
    assert follower.write(str(tmp_path)).left == 0
    assert read(late, "test/top1") == [(1, 61.0), (2, 71.0)]


def test_a_followed_mean_waits_for_all_seeds_of_an_epoch(growing: Growing, tmp_path: Path) -> None:
    follower = exporter(growing.lab, TensorBoardWriter(tmp_path), follows=True)
    (mean,) = follower.write(str(tmp_path)).means
    assert read(tmp_path / mean, "test/top1") == [(1, 60.5)]
    growing.end()
    follower.write(str(tmp_path))
    assert read(tmp_path / mean, "test/top1") == [(1, 60.5), (2, 70.5)]


def test_what_could_not_be_written_is_written_the_next_time(
    growing: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TensorBoardWriter(tmp_path)
    follower = exporter(growing.lab, writer, follows=True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            follower.write(str(tmp_path))
    found = follower.write(str(tmp_path))
    assert read(tmp_path / named(found.runs, "seed1"), "test/top1") == [(1, 61.0)]


def test_a_run_that_is_trained_anew_replaces_what_was_written(
    quiet_lab: Lab, tmp_path: Path
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), scored(10.0), ended("completed"))
    quiet_lab.tick(start=False)
    places = {form: tmp_path / form for form in ("tensorboard", "mlflow", "csv")}
    followers = [
        exporter(quiet_lab, TensorBoardWriter(places["tensorboard"]), follows=True),
        exporter(quiet_lab, MLflowWriter(places["mlflow"], "lab"), follows=True),
        exporter(quiet_lab, TableWriter(places["csv"], "csv"), follows=True),
    ]
    for one in followers:
        one.write("")
    retry(quiet_lab.open(), [run_id], clean=True)
    quiet_lab.tick()
    journal(quiet_lab, run_id, 2, started(attempt=2), scored(99.0), ended("completed"))
    quiet_lab.tick(start=False)
    for one in followers:
        (name,) = one.write("").runs
    assert read(places["tensorboard"] / name, "test/top1") == [(1, 99.0)]
    runs = mlflow_runs(places["mlflow"], "lab")
    assert mlflow_history(places["mlflow"], runs[name], "test/top1") == [(1, 99.0)]
    table = (places["csv"] / "curves.csv").read_text()
    assert ",99.0," in table and ",10.0," not in table


# Names --------------------------------------------------------------------------------------------


def test_cells_that_no_label_tells_apart_have_names_of_their_own(
    quiet_lab: Lab, tmp_path: Path
) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="1"))
    runs += quiet_lab.submit(tiny_grid(name="longer", seeds="1", epochs=3))
    quiet_lab.tick()
    for run_id, score in zip(runs, (60.0, 80.0), strict=True):
        journal(quiet_lab, run_id, 1, started(), scored(score), ended("completed"))
    quiet_lab.tick(start=False)
    found = exported(quiet_lab, tmp_path)
    assert len(set(found.runs)) == 2
    shown = {name: read(tmp_path / name, "test/top1") for name in found.runs}
    assert sorted(shown.values()) == [[(1, 60.0)], [(1, 80.0)]]


def test_a_second_export_of_another_selection_leaves_no_old_names(
    scored_lab: Lab, tmp_path: Path
) -> None:
    exported(scored_lab, tmp_path)
    exported(scored_lab, tmp_path, "head=relvit")
    folders = {path.parent.parent.name for path in tmp_path.rglob("events.out.*")}
    assert folders == {"relvit"}


def test_runs_of_a_variance_study_have_curves_and_no_mean(quiet_lab: Lab, tmp_path: Path) -> None:
    design = "variance: {design: crossed, vary: {init: 2, order: 2}}"
    runs = quiet_lab.submit(tiny_grid().replace("seeds: 2\n", f"{design}\n"))
    quiet_lab.tick()
    for number, run_id in enumerate(runs):
        journal(quiet_lab, run_id, 1, started(), scored(60.0 + number), ended("completed"))
    quiet_lab.tick(start=False)
    found = exported(quiet_lab, tmp_path)
    assert len(set(found.runs)) == 4 and found.left == 0


def test_a_value_that_is_no_number_is_the_same_again() -> None:
    assert same(math.nan, math.nan) and not same(math.nan, 1.0) and same(1.0, 1.0)


# MLflow -------------------------------------------------------------------------------------------


def mlflow_runs(folder: Path, experiment: str) -> dict[str, object]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    found = client.get_experiment_by_name(experiment)
    return {run.info.run_name: run for run in client.search_runs([found.experiment_id])}


def mlflow_history(folder: Path, run: object, key: str) -> list[tuple[int, float]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    points = client.get_metric_history(run.info.run_id, key)  # type: ignore[attr-defined]
    return sorted((point.step, point.value) for point in points)


def test_mlflow_finds_runs_and_means_with_what_they_are(scored_lab: Lab, tmp_path: Path) -> None:
    found = exporter(scored_lab, MLflowWriter(tmp_path, "lab")).write(str(tmp_path))
    runs = mlflow_runs(tmp_path, "lab")
    assert set(runs) == {*found.runs, *found.means}
    one = runs[named(found.runs, "relvit/seed1")]
    assert one.data.params["head"] == "relvit" and one.data.params["seed"] == "1"  # type: ignore[attr-defined]
    assert one.info.status == "FINISHED"  # type: ignore[attr-defined]
    mean = runs[named(found.means, "supervised/mean")]
    assert mlflow_history(tmp_path, mean, "test/top1") == [(1, 60.5), (2, 70.5)]


def test_a_second_export_to_mlflow_adds_what_is_new(growing: Growing, tmp_path: Path) -> None:
    first = exporter(growing.lab, MLflowWriter(tmp_path, "lab")).write(str(tmp_path))
    name = named(first.runs, "seed1")
    assert mlflow_runs(tmp_path, "lab")[name].info.status == "RUNNING"  # type: ignore[attr-defined]
    growing.end()
    exporter(growing.lab, MLflowWriter(tmp_path, "lab")).write(str(tmp_path))
    runs = mlflow_runs(tmp_path, "lab")
    assert set(runs) == {*first.runs, *first.means}
    assert mlflow_history(tmp_path, runs[name], "test/top1") == [(1, 61.0), (2, 71.0)]
    mean = mlflow_history(tmp_path, runs[first.means[0]], "test/top1")
    assert mean == [(1, 60.5), (2, 70.5)]


# W&B ----------------------------------------------------------------------------------------------


def wandb_records(run: Path) -> list[dict[str, Any]]:
    """Return what W&B's own reader finds in an offline run."""
    wandb = str(Path(sys.executable).with_name("wandb"))
    command = [wandb, "leet", "inspect", "--json", str(run)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_wandb_finds_a_mean_with_its_name_its_cell_and_its_curve(
    growing: Growing, tmp_path: Path
) -> None:
    growing.end()
    found = exporter(growing.lab, WandbWriter(tmp_path, "lab")).write(str(tmp_path))
    (mean,) = (tmp_path / "wandb").glob("offline-run-*-mean-*")
    records = wandb_records(mean)
    (run,) = (record["run"] for record in records if record["type"] == "run")
    assert run["display_name"] == found.means[0]
    assert run["run_group"] + "/mean" == found.means[0]
    history = [record["history"] for record in records if record["type"] == "history"]
    assert [(one["step"]["num"], one["item"]["test/top1"]) for one in history] == [
        (1, 60.5),
        (2, 70.5),
    ]
    # The machine that exports is not the one that trained.
    assert not [record for record in records if record["type"] == "environment"]


def test_a_followed_run_is_handed_to_wandb_when_it_is_over(
    growing: Growing, tmp_path: Path
) -> None:
    follower = exporter(growing.lab, WandbWriter(tmp_path, "lab"), follows=True)
    follower.write(str(tmp_path))
    assert not list(tmp_path.glob("wandb/offline-run-*"))
    growing.end()
    follower.write(str(tmp_path))
    follower.write(str(tmp_path))
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 3


# Tables -------------------------------------------------------------------------------------------


def test_a_table_has_a_line_for_each_value(growing: Growing, tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        exporter(growing.lab, TableWriter(tmp_path, form)).write(str(tmp_path))
    table = parquet.read_table(tmp_path / "curves.parquet").to_pylist()
    scores = [row for row in table if row["seed"] == 1 and row["set"] == "test"]
    assert ("top1", 1, 61.0) in [(row["metric"], row["epoch"], row["value"]) for row in scores]
    lines = (tmp_path / "curves.csv").read_text().splitlines()
    assert len(lines) == len(table) + 1
    assert lines[0].startswith("name,run_id,seed,set,metric,epoch,value,backbone,")

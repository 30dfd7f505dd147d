"""From classes to objects: weights of one stage learn to find objects in the next, as a user does it."""

from pathlib import Path
from typing import Any

import pytest

from .conftest import finished
from .support.cli import Cli
from .support.object_images import object_folder
from .support.training import image_folder

pytestmark = pytest.mark.training

GRID = """\
name: parts
backbones: [swin_mini]
datasets: [./whole]
seeds: 2
recipe: quickstart
train: {epochs: 1, batch_size: 8, image_size: 32, warmup_epochs: 0}
stages:
  - {name: pretrain, heads: [supervised, {drloc: {weight: 0.5}}], train: {pipeline: pil}}
  - name: detect
    heads: [supervised]
    datasets: [{parts: {path: ./parts, task: detection}}]
    recipe: mask-rcnn
    init_from: pretrain
    train: {virtual_ranks: 2, decoder_width: 16, longest_side: 48}
compare: {alpha: 0.1}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Any:
    folder = tmp_path_factory.mktemp("detection")
    image_folder(folder / "whole", train=8, test=4)
    object_folder(folder / "parts", train=10, test=4)
    yield from finished(folder, cache, GRID)


@pytest.mark.paper("DR-79")
def test_the_report_compares_what_was_pre_trained_by_the_precision_of_its_boxes(lab: Cli) -> None:
    cells = lab.json("report", "parts")
    assert {(cell["head"], cell["metric"], cell["n"]) for cell in cells} == {
        ("supervised-then-supervised", "ap_box", 2),
        ("drloc-then-supervised", "ap_box", 2),
    }
    masks = lab.json("report", "parts", "--metric", "ap_mask")
    assert {cell["n"] for cell in masks} == {2}


@pytest.mark.paper("DR-58")
def test_a_run_starts_from_the_weights_before_it_and_draws_the_detector(lab: Cli) -> None:
    run = next(one for one in lab.json("runs", "parts") if one["stage"] == "detect")
    shown = lab.json("show", run["run_id"])
    assert shown["parent"] is not None
    # The classifier before it is no part of a detector, and all else of the encoder is loaded.
    assert shown["weights"]["drawn"] == [] and shown["weights"]["loaded"] > 10


def test_runs_are_listed_with_the_score_that_each_has(lab: Cli) -> None:
    for run in lab.json("runs", "parts"):
        has = {name for name in ("top1", "miou", "ap_box") if run[name] is not None}
        assert has == ({"ap_box"} if run["stage"] == "detect" else {"top1"})
    assert "AP_BOX" in lab.ok("runs", "parts") and "TOP1" in lab.ok("runs", "parts")
    assert "TOP1" not in lab.ok("runs", "parts", "stage=detect")


@pytest.mark.parametrize("words", [["--knn", "5"], ["--image-size", "64"], ["--scales", "1"]])
def test_scoring_that_means_nothing_for_objects_is_refused(lab: Cli, words: list[str]) -> None:
    done = lab("evaluate", "parts", "stage=detect", *words)
    assert done.returncode == 2 and f"{words[0]}: not for runs on objects" in done.stderr


def test_scored_once_more_a_run_has_the_score_that_it_had(lab: Cli) -> None:
    before = {run["run_id"]: run["ap_box"] for run in lab.json("runs", "parts", "stage=detect")}
    lab.ok("evaluate", "parts", "stage=detect")
    after = {run["run_id"]: run["ap_box"] for run in lab.json("runs", "parts", "stage=detect")}
    assert after == before


def test_what_a_detector_costs_is_counted(lab: Cli) -> None:
    costs = {cell["dataset"]: cell for cell in lab.json("cost", "parts")}
    detector, classifier = costs["parts"], costs["whole"]
    assert detector["parameters"] > classifier["parameters"]
    assert detector["multiply_adds"] > classifier["multiply_adds"] > 0


def test_curves_are_of_the_precision_of_boxes_without_being_asked(lab: Cli) -> None:
    curves = lab.json("curve", "parts", "stage=detect")
    assert {curve["metric"] for curve in curves} == {"ap_box"}

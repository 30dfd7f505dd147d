"""From classes to masks: weights of one stage are trained on masks in the next, as a user does it."""

from pathlib import Path
from typing import Any

import pytest

from .conftest import finished
from .support.cli import Cli
from .support.mask_images import mask_folder
from .support.training import image_folder

pytestmark = pytest.mark.training

GRID = """\
name: scenes
backbones: [vit_mini]
datasets: [./objects]
seeds: 2
recipe: quickstart
train: {epochs: 1, batch_size: 8, image_size: 32, warmup_epochs: 0}
stages:
  - {name: pretrain, heads: [supervised, {drloc: {weight: 0.5}}], train: {pipeline: pil}}
  - name: segment
    heads: [supervised]
    datasets: [{scenes: {path: ./scenes, task: segmentation}}]
    recipe: upernet
    init_from: pretrain
    train: {virtual_ranks: 2, decoder_width: 16}
compare: {alpha: 0.1}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Any:
    folder = tmp_path_factory.mktemp("segmentation")
    image_folder(folder / "objects", train=8, test=4)
    mask_folder(folder / "scenes", train=10, test=4)
    yield from finished(folder, cache, GRID)


@pytest.mark.paper("DR-79")
def test_the_report_compares_what_was_pre_trained_by_its_masks(lab: Cli) -> None:
    cells = lab.json("report", "scenes")
    assert {(cell["head"], cell["metric"], cell["n"]) for cell in cells} == {
        ("supervised-then-supervised", "miou", 2),
        ("drloc-then-supervised", "miou", 2),
    }


@pytest.mark.paper("DR-59")
def test_a_run_starts_from_the_weights_before_it_and_draws_its_decoder(lab: Cli) -> None:
    run = next(one for one in lab.json("runs", "scenes") if one["stage"] == "segment")
    shown = lab.json("show", run["run_id"])
    assert shown["parent"] is not None
    # The classifier before it is no part of a segmenter, and all else of the encoder is loaded.
    assert shown["weights"]["drawn"] == [] and shown["weights"]["loaded"] > 10


def test_runs_are_listed_with_the_score_that_each_has(lab: Cli) -> None:
    runs = lab.json("runs", "scenes")
    for run in runs:
        has = {name for name in ("top1", "miou") if run[name] is not None}
        assert has == ({"miou"} if run["stage"] == "segment" else {"top1"})
    assert "MIOU" in lab.ok("runs", "scenes") and "TOP1" in lab.ok("runs", "scenes")
    assert "TOP1" not in lab.ok("runs", "scenes", "stage=segment")
    assert "MIOU" not in lab.ok("runs", "scenes", "stage=pretrain")


def test_several_sizes_score_the_runs_on_masks_and_leave_the_others_out(lab: Cli) -> None:
    done = lab("evaluate", "scenes", "--scales", "1,0.5")
    assert "4 runs left out. --scales: for runs on masks" in done.stderr
    assert done.stdout.count("test@scales0.5-1: miou") == 4
    report = lab.json("report", "scenes", "--set", "test@scales0.5-1")
    assert {cell["n"] for cell in report} == {2}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--knn", "5"], "--knn: not for runs on masks"),
        (["--image-size", "64"], "give --scales for other sizes"),
        (["--scales", "0"], "--scales 0: must be numbers above 0, up to 8"),
    ],
)
def test_scoring_that_means_nothing_for_masks_is_refused(
    lab: Cli, words: list[str], says: str
) -> None:
    done = lab("evaluate", "scenes", "stage=segment", *words)
    assert done.returncode == 2 and says in done.stderr


def test_the_spread_of_masks_is_not_split_by_images_which_are_not_right_as_a_whole(
    lab: Cli,
) -> None:
    cells = lab.json("variance", "scenes", "stage=segment")
    assert {cell["why_not"] for cell in cells} == {"its images are not right or wrong as a whole"}


def test_curves_are_of_miou_without_being_asked(lab: Cli) -> None:
    curves = lab.json("curve", "scenes", "stage=segment")
    assert {curve["metric"] for curve in curves} == {"miou"}

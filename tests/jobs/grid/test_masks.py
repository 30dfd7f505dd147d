"""Datasets whose images have masks, as a grid names them."""

from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid.image_folder import describe_masks
from vtjobs.jobs.grid.load import Intake, take_in_document
from vtjobs.jobs.strict_yaml import Document

from ...support.mask_images import mask_folder

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture
def scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return mask_folder(tmp_path / "scenes", train=6, test=2)


def _taken_in(**changes: Any) -> Intake:
    data: dict[str, Any] = {
        "name": "masks",
        "backbones": ["vit_mini"],
        "datasets": ["ade20k"],
        "heads": ["supervised"],
        "seeds": 1,
        "recipe": "upernet",
        **changes,
    }
    given = {key: value for key, value in data.items() if value is not None}
    return take_in_document(Document(file="grid.yaml", data=given))


def _refused(**changes: Any) -> str:
    with pytest.raises(BadInput) as error:
        _taken_in(**changes)
    return str(error.value)


# A lab's own folder --------------------------------------------------------------------------------


def test_a_folder_is_counted_and_known_by_its_images_masks_and_classes(scenes: Path) -> None:
    (dataset,) = (
        cell.spec.settings.dataset
        for cell in _taken_in(
            datasets=[{"scenes": {"path": str(scenes), "task": "segmentation"}}]
        ).expansion.cells
    )
    assert (dataset.name, dataset.task) == ("folder", "segmentation")
    assert (dataset.classes, dataset.train, dataset.test) == (3, 6, 2)
    before = describe_masks(scenes)["fingerprint"]
    assert dataset.fingerprint == before
    (scenes / "classes.txt").write_text("a\nb\nanother\n")
    named = describe_masks(scenes)["fingerprint"]
    (scenes / "masks" / "test" / "1.png").write_bytes(b"other levels")
    assert len({before, named, describe_masks(scenes)["fingerprint"]}) == 3


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: (root / "classes.txt").unlink(), "classes.txt: expected a file with a class"),
        (lambda root: (root / "classes.txt").write_text("one\n"), "1 classes, expected 2 to 255"),
        (lambda root: (root / "masks" / "test" / "0.png").unlink(), "images/test/0.png: no mask"),
        (lambda root: (root / "images" / "train").rename(root / "gone"), "expected the folders"),
    ],
)
def test_a_folder_of_another_form_is_bad_input(scenes: Path, spoil: Any, says: str) -> None:
    spoil(scenes)
    given = {"path": str(scenes), "task": "segmentation"}
    assert says in _refused(datasets=[{"scenes": given}])


def test_what_is_no_image_is_no_part_of_a_folder(scenes: Path) -> None:
    before = describe_masks(scenes)
    (scenes / "images" / "train" / ".DS_Store").write_bytes(b"")
    assert describe_masks(scenes) == before


def test_two_images_with_one_mask_are_refused(scenes: Path) -> None:
    (scenes / "images" / "train" / "0.jpg").write_bytes(b"")
    given = {"path": str(scenes), "task": "segmentation"}
    assert "0.png: it would share a mask with 0.jpg" in _refused(datasets=[{"scenes": given}])


def test_a_task_that_there_is_not_is_bad_input(scenes: Path) -> None:
    given = {"path": str(scenes), "task": "depth"}
    said = _refused(datasets=[{"scenes": given}])
    assert "expected classification, segmentation or detection, got 'depth'" in said


# What goes together --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"heads": ["relvit"]}, "relvit learns beside a classifier, and this dataset has masks"),
        ({"recipe": "deit"}, "not for a dataset with masks as the recipe has it"),
        ({"train": {"mixup": 0.8}}, "Set train: {mixup: 0.0}, or recipe: upernet"),
        ({"train": {"compile": True}}, "Set train: {compile: false}"),
        ({"train": {"crop": "resized"}}, 'Set train: {crop: "none"}'),
        ({"datasets": ["cifar10"]}, "rescale is for datasets with masks"),
        ({"train": {"rescale": [2.0, 0.5]}}, "rescale is [smallest, largest]"),
        (
            {"data": {"metrics": [f"{EXAMPLES / 'balanced.py'}:balanced_accuracy"]}},
            "your own metrics are given a class for each image, and ade20k has none",
        ),
        ({"compare": {"metric": "top1"}}, "no set is scored by 'top1'"),
        ({"record_depth": True}, "only runs that learn classes record what their blocks add"),
    ],
)
def test_what_does_not_go_with_masks_is_refused_with_what_to_set(
    changes: dict[str, Any], says: str
) -> None:
    assert says in _refused(**changes)


def test_the_fields_that_are_named_are_all_that_a_recipe_has_to_change() -> None:
    said = _refused(recipe="deit")
    fields = said.split("Set train: {")[1].split("}")[0]
    train = dict(part.split(": ") for part in fields.split(", "))
    values = {"null": None, "false": False, '"pil"': "pil", '"none"': "none"}
    changes = {
        name: values[value] if value in values else float(value) if "." in value else int(value)
        for name, value in train.items()
    }
    assert len(_taken_in(recipe="deit", train=changes).expansion.cells) == 1


def test_weights_of_masks_are_no_start_for_a_further_stage() -> None:
    stages = [
        {"name": "first", "heads": ["supervised"]},
        {"name": "second", "heads": ["supervised"], "init_from": "first"},
    ]
    said = _refused(stages=stages, heads=None)
    assert "ade20k cannot start from weights that were trained on masks" in said


# What is compared ----------------------------------------------------------------------------------


def test_a_comparison_that_names_no_metric_is_of_miou() -> None:
    compare = _taken_in(compare={"alpha": 0.1}).grid.compare
    assert compare is not None and compare.metric == "miou"


def test_of_a_chain_the_last_stage_decides_what_is_compared() -> None:
    stages = [
        {"name": "pretrain", "heads": ["supervised"], "recipe": "quickstart"},
        {
            "name": "segment",
            "heads": ["supervised"],
            "datasets": ["ade20k"],
            "recipe": "upernet",
            "init_from": "pretrain",
        },
    ]
    changes = {"heads": None, "datasets": ["cifar10"], "recipe": "quickstart"}
    compare = _taken_in(**changes, stages=stages, compare={"alpha": 0.1}).grid.compare
    assert compare is not None and compare.metric == "miou"

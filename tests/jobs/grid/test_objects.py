"""Datasets whose images have objects, as a grid names them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid.load import Intake, take_in_document
from vtjobs.jobs.grid.object_folder import describe_objects
from vtjobs.jobs.strict_yaml import Document

from ...support.object_images import object_folder


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return object_folder(tmp_path / "parts", train=4, test=2, empty=3)


def _taken_in(**changes: Any) -> Intake:
    data: dict[str, Any] = {
        "name": "objects",
        "backbones": ["vit_mini"],
        "datasets": ["coco2017"],
        "heads": ["supervised"],
        "seeds": 1,
        "recipe": "mask-rcnn",
        **changes,
    }
    given = {key: value for key, value in data.items() if value is not None}
    return take_in_document(Document(file="grid.yaml", data=given))


def _refused(**changes: Any) -> str:
    with pytest.raises(BadInput) as error:
        _taken_in(**changes)
    return str(error.value)


def _own(folder: Path) -> list[Any]:
    return [{"parts": {"path": str(folder), "task": "detection"}}]


def _rewritten(file: Path, change: Callable[[Any], Any]) -> None:
    described = json.loads(file.read_text())
    change(described)
    file.write_text(json.dumps(described))


# A lab's own folder --------------------------------------------------------------------------------


def test_a_folder_is_counted_by_its_annotations_and_images_without_objects_are_no_part_of_training(
    parts: Path,
) -> None:
    (cell,) = _taken_in(datasets=_own(parts)).expansion.cells
    dataset = cell.spec.settings.dataset
    assert (dataset.name, dataset.task) == ("folder", "detection")
    assert (dataset.classes, dataset.train, dataset.test) == (2, 4, 2)


def test_an_image_with_nothing_but_a_crowd_is_no_part_of_training(parts: Path) -> None:
    def crowd(described: Any) -> None:
        for one in described["annotations"]:
            one["iscrowd"] = int(one["image_id"] == 10)

    _rewritten(parts / "annotations" / "train.json", crowd)
    assert describe_objects(parts)["train"] == 3


def test_a_folder_is_known_by_its_images_and_annotations(parts: Path) -> None:
    seen = [describe_objects(parts)["fingerprint"]]
    _rewritten(
        parts / "annotations" / "test.json", lambda all: all["annotations"][0].update(iscrowd=1)
    )
    seen.append(describe_objects(parts)["fingerprint"])
    (parts / "images" / "train" / "0.png").write_bytes(b"another image")
    seen.append(describe_objects(parts)["fingerprint"])
    assert len(set(seen)) == 3


def test_files_may_be_called_as_programs_for_annotating_call_them(parts: Path) -> None:
    before = describe_objects(parts)
    for part in ("train", "test"):
        file = parts / "annotations" / f"{part}.json"
        file.rename(file.with_name(f"instances_{part}.json"))
    after = describe_objects(parts)
    assert {**after, "fingerprint": ""} == {**before, "fingerprint": ""}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda all: all.pop("images"), "missing required field `images`"),
        (lambda all: all["images"].append(all["images"][0]), "two of its images have the id 10"),
        (
            lambda all: all["images"][1].update(file_name="0.png"),
            "two of its images have the file_name '0.png'",
        ),
        (
            lambda all: all["images"][0].update(file_name="../test/0.png"),
            "images[0]: file_name '../test/0.png' leaves the images' folder",
        ),
        (lambda all: all["images"][0].update(width=-5), "width and height must be whole numbers"),
        (lambda all: all["categories"][1].update(name="square"), "have the name 'square'"),
        (
            lambda all: all["annotations"][2].update(image_id=99),
            "annotations[2]: there is no image with id 99",
        ),
        (
            lambda all: all["annotations"][1].update(category_id=2),
            "annotations[1]: there is no category with id 2",
        ),
        (
            lambda all: all["annotations"][0].update(bbox=[1, 2, -3, 4]),
            "annotations[0]: bbox [1.0, 2.0, -3.0, 4.0] is none",
        ),
        (
            lambda all: all["annotations"][0].update(segmentation=[]),
            "1 of 8 objects have no segmentation, the first is annotations[0], on image 10",
        ),
        (lambda all: all["annotations"][3].pop("segmentation"), "the first is annotations[3]"),
        (
            lambda all: all["annotations"][2].update(segmentation="abc"),
            "annotations[2]: segmentation: expected polygons or a run-length code",
        ),
        (lambda all: all["annotations"].clear(), "no image has an object to learn"),
        (
            lambda all: all["categories"].append({"id": 9, "name": "ring"}),
            "train and test have different categories (9: ring)",
        ),
        (
            lambda all: all["categories"].append({"id": "9", "name": "ring"}),
            "train and test have different categories (9: ring)",
        ),
        (lambda all: all["images"][0].update(file_name="gone.png"), "gone.png"),
    ],
)
def test_annotations_that_contradict_themselves_are_bad_input(
    parts: Path, change: Callable[[Any], Any], says: str
) -> None:
    _rewritten(parts / "annotations" / "train.json", change)
    said = _refused(datasets=_own(parts))
    assert says in said and str(parts) in said


def test_what_programs_write_in_their_own_way_is_understood(parts: Path) -> None:
    before = describe_objects(parts)
    for part in ("train", "test"):
        file = parts / "annotations" / f"{part}.json"

        def change(described: Any) -> None:
            for image in described["images"]:
                image["width"], image["id"] = float(image["width"]), str(image["id"])
            for one in described["annotations"]:
                one["iscrowd"], one["image_id"] = False, str(one["image_id"])
                del one["area"]

        _rewritten(file, change)
        # With a mark of the byte order in front, as some editors write it.
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
        file.rename(file.with_name(f"instances_{part}2017.json"))
    assert {**describe_objects(parts), "fingerprint": ""} == {**before, "fingerprint": ""}


def test_a_test_part_in_which_nothing_can_be_found_is_bad_input(parts: Path) -> None:
    _rewritten(parts / "annotations" / "test.json", lambda all: all["annotations"].clear())
    assert "test.json: no image has an object to find" in _refused(datasets=_own(parts))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: (root / "annotations" / "train.json").write_text("{"), "no file of"),
        (lambda root: (root / "annotations" / "test.json").unlink(), "expected the files"),
        (lambda root: root.rename(root.with_name("gone")), "folder does not exist"),
    ],
)
def test_a_folder_of_another_form_is_bad_input(parts: Path, spoil: Any, says: str) -> None:
    spoil(parts)
    assert says in _refused(datasets=_own(parts))


# What goes together --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"heads": [{"drloc": {"weight": 0.5}}]},
            "drloc learns beside a classifier, and this dataset has objects",
        ),
        ({"train": {"mixup": 0.8}}, "Set train: {mixup: 0.0}, or recipe: mask-rcnn"),
        ({"train": {"crop": "simple"}}, 'Set train: {crop: "none"}'),
        ({"train": {"color_jitter": 0.4}}, "Set train: {color_jitter: 0.0}"),
        ({"datasets": ["ade20k"]}, "longest_side is for datasets with objects"),
        ({"train": {"longest_side": 700}}, "longest_side 700 must not be less than image_size 800"),
        ({"train": {"decay_epochs": [11, 8]}}, "decay_epochs: expected a rising list"),
        ({"compare": {"metric": "miou"}}, "no set is scored by 'miou'"),
    ],
)
def test_what_does_not_go_with_objects_is_refused_with_what_to_set(
    changes: dict[str, Any], says: str
) -> None:
    assert says in _refused(**changes)


def test_weights_of_a_detector_are_no_start_for_a_further_stage() -> None:
    stages = [
        {"name": "first", "heads": ["supervised"]},
        {"name": "second", "heads": ["supervised"], "init_from": "first"},
    ]
    said = _refused(stages=stages, heads=None)
    assert "coco2017 cannot start from weights that were trained on objects" in said


def test_a_comparison_that_names_no_metric_is_of_the_precision_of_boxes() -> None:
    compare = _taken_in(compare={"alpha": 0.1}).grid.compare
    assert compare is not None and compare.metric == "ap_box"

"""A lab's own folder of images whose objects are annotated as in COCO."""

from pathlib import Path
from typing import Any

from ..errors import BadInput
from .coco_file import CocoFile, check_masks, is_trained_on, read_coco
from .image_folder import PICTURES, TEST_FOLDERS, manifest_of

ANNOTATIONS = "annotations"
# Names that programs for annotating give to the file of a part.
_NAMES = ("{}.json", "instances_{}.json", "instances_{}2017.json")


def annotations_of(root: Path, part: str) -> Path | None:
    """Return a part's file of annotations; None where there is none."""
    paths = [root / ANNOTATIONS / name.format(part) for name in _NAMES]
    return next((path for path in paths if path.is_file()), None)


def test_part(root: Path) -> str | None:
    """Return `test` or `val`, whichever has annotations; None where neither has."""
    return next((part for part in TEST_FOLDERS if annotations_of(root, part)), None)


def describe_objects(path: Path) -> dict[str, Any]:
    """Return fingerprint, classes and sizes of `<path>/images/train|test|val/*`, with the objects
    of each part in `<path>/annotations/train|test|val.json` (or `instances_train.json`).

    Of the training images those count that have an object, crowds left out.

    Raises:
        BadInput: the folder does not exist, or has not this form.
    """
    if not path.is_dir():
        raise BadInput(f"dataset {path}: folder does not exist")
    test = test_part(path)
    if test is None or annotations_of(path, "train") is None:
        raise BadInput(
            f"dataset {path}: expected the files annotations/train.json and annotations/test.json"
            " (or val.json), and the folders images/train/ and images/test/ (or val/)"
        )
    parts = {part: _part(path, part) for part in ("train", test)}
    train, scored = parts["train"], parts[test]
    if train.classes != scored.classes:
        # As text: one part may have numbers, the other one words.
        odd = sorted(set(train.classes.items()) ^ set(scored.classes.items()), key=str)[:5]
        named = ", ".join(f"{number}: {name}" for number, name in odd)
        raise BadInput(f"dataset {path}: train and {test} have different categories ({named})")
    learnt = sum(not all(one.iscrowd for one in objects) for objects in train.of_images())
    if not any(map(is_trained_on, train.annotations)):
        raise BadInput(f"dataset {_file(path, 'train')}: no image has an object to learn")
    if all(one.iscrowd for one in scored.annotations):
        raise BadInput(f"dataset {_file(path, test)}: no image has an object to find")
    return {
        "fingerprint": manifest_of(
            path, [name for part in parts for name in _files(path, part, parts[part])]
        ),
        "classes": len(train.classes),
        "train": learnt,
        "test": len(scored.images),
    }


def _files(path: Path, part: str, found: CocoFile) -> list[str]:
    """Return a part's files by their names in the folder."""
    pictures = [f"{PICTURES}/{part}/{one.file_name}" for one in found.images]
    return [str(_file(path, part).relative_to(path)), *pictures]


def _file(path: Path, part: str) -> Path:
    file = annotations_of(path, part)
    assert file is not None
    return file


def _part(path: Path, part: str) -> CocoFile:
    """Return what a part's file holds.

    Raises:
        BadInput: it cannot be used, or an image is not there.
    """
    file = _file(path, part)
    try:
        found = read_coco(file)
        check_masks(file, found)
    except (OSError, BadInput) as error:
        raise BadInput(f"dataset {error}") from None
    for one in found.images:
        picture = path / PICTURES / part / one.file_name
        if not picture.is_file():
            raise BadInput(f"dataset {file}: no image {picture}")
    return found

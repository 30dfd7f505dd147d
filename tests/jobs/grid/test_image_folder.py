"""The fingerprint of an image folder."""

import os
from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid.image_folder import cache_folder, describe_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two classes, three images to train and two to test on."""
    return make(tmp_path / "images")


def make(root: Path) -> Path:
    for file in ("train/a/1.png", "train/a/2.JPG", "train/b/1.png", "val/a/1.png", "val/b/x.jpeg"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(file.encode())
    return root


def test_a_folder_is_counted(images: Path) -> None:
    facts = describe_folder(images)
    assert {key: facts[key] for key in ("classes", "train", "test", "test_folder")} == {
        "classes": 2, "train": 3, "test": 2, "test_folder": "val",
    }  # fmt: skip


def test_the_same_content_elsewhere_has_the_same_fingerprint(images: Path, tmp_path: Path) -> None:
    assert describe_folder(make(tmp_path / "copy")) == describe_folder(images)


@pytest.mark.parametrize("change", ["content", "name", "label", "one more", "one less"])
def test_any_change_of_the_images_changes_the_fingerprint(images: Path, change: str) -> None:
    before = describe_folder(images)["fingerprint"]
    file = images / "train/a/1.png"
    match change:
        case "content":
            file.write_bytes(b"train/a/1.pnG")
        case "name":
            file.rename(file.with_name("3.png"))
        case "label":
            file.rename(images / "train/b/9.png")
        case "one more":
            file.with_name("4.png").touch()
        case "one less":
            file.unlink()
    assert describe_folder(images)["fingerprint"] != before


def test_what_is_no_image_is_no_part_of_it(images: Path) -> None:
    before = describe_folder(images)
    for name in (
        "README.md",
        "train/a/notes.txt",
        "train/.DS_Store",
        "stray.png",
        "train/stray.png",
    ):
        (images / name).touch()
    assert describe_folder(images) == before


def test_files_that_did_not_change_are_not_read_again(images: Path) -> None:
    before = describe_folder(images)
    file = images / "train/a/1.png"
    stamp = file.stat()
    file.write_bytes(b"x" * stamp.st_size)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert describe_folder(images) == before, "size and time are as they were, so the cache answers"


def test_a_damaged_cache_is_made_anew(images: Path) -> None:
    before = describe_folder(images)
    for cache in cache_folder().glob("manifest-*"):
        cache.write_text('{"train/a')
    assert describe_folder(images) == before


@pytest.mark.parametrize(
    ("remove", "says"),
    [
        (["val"], "expected the folders train/<class>/ and test/<class>/"),
        (["train"], "expected the folders train/<class>/ and test/<class>/"),
        (["train/a", "train/b"], "no images in train/<class>/"),
        (["val/a", "val/b"], "no images in val/<class>/"),
        (["val/b"], "train and val have different classes (b)"),
    ],
)
def test_a_folder_of_another_form_is_bad_input(images: Path, remove: list[str], says: str) -> None:
    import shutil

    for name in remove:
        shutil.rmtree(images / name)
    with pytest.raises(BadInput) as caught:
        describe_folder(images)
    assert says in str(caught.value)


def test_a_dangling_link_is_bad_input(images: Path) -> None:
    (images / "train/a/9.png").symlink_to(images / "none.png")
    with pytest.raises(BadInput, match=r"train/a/9\.png"):
        describe_folder(images)

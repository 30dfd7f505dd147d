"""The images of a split in a few large files are the images that lay in small ones."""

import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.workers.data import packs
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.packs import Packer, read_split
from vtjobs.workers.errors import DataError, DataMissing

from ...support.training import image_folder

# What a file system lets names be: any bytes but these two, and a tar file has no member without one.
PARTS = st.text(
    st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=60
).filter(lambda name: name not in (".", ".."))
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join)


def packed(folder: Path, contents: dict[str, bytes], shard_bytes: int = 1 << 20) -> Path:
    """Pack bytes as the images of a split; return its index."""
    packer = Packer(folder=folder, shard_bytes=shard_bytes)
    packer.add("train", iter(contents.items()))
    labels = torch.arange(len(contents))
    packer.finish("train", list(contents), ImageSet(labels=labels))
    return folder / "train.npz"


def members(folder: Path) -> dict[str, bytes]:
    """Return what tar finds in all shards of a folder."""
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path, errors="surrogateescape") as archive:
            for member in archive:
                stream = archive.extractfile(member)
                assert stream is not None
                found[member.name] = stream.read()
    return found


@given(
    contents=st.dictionaries(NAMES, st.binary(max_size=2000), min_size=1, max_size=12),
    shard_bytes=st.integers(1, 8000),
)
def test_tar_gives_back_every_file_whatever_it_is_called(
    contents: dict[str, bytes], shard_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pack")
    index = packed(folder, contents, shard_bytes)
    assert members(folder) == contents
    read = read_split(index)
    assert read.files is not None
    assert [str(path).partition(".tar/")[2] for path in read.files] == list(contents)


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, bytes]:
    root = image_folder(tmp_path / "images", train=6, test=1)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.png"))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "packed"
    made.mkdir()
    return made


def test_a_packed_picture_has_the_pixels_of_its_file(
    tmp_path: Path, folder: Path, pictures: dict[str, bytes]
) -> None:
    from PIL import Image

    read = read_split(packed(folder, pictures, shard_bytes=5000))
    assert len(list(folder.glob("*.tar"))) > 2
    for number, name in enumerate(pictures):
        with Image.open(tmp_path / "images" / name) as image:
            assert numpy.array_equal(read.pil(number), image)


def test_reading_pictures_opens_no_file(folder: Path, pictures: dict[str, bytes]) -> None:
    read = read_split(packed(folder, pictures))
    read.pil(0)
    with opened() as files:
        for number in range(len(pictures)):
            read.pil(number)
    assert files == []


class opened:
    """The files that are opened in a block. A hook of Python's cannot be taken away again."""

    def __enter__(self) -> list[str]:
        self.names: list[str] = []
        self.is_on = True
        sys.addaudithook(self)
        return self.names

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event == "open":
            self.names.append(str(arguments[0]))

    def __exit__(self, *_: object) -> None:
        self.is_on = False


def test_which_classes_are_right_is_kept(folder: Path, pictures: dict[str, bytes]) -> None:
    count = len(pictures)
    answers, only = torch.rand(count, 7) > 0.5, torch.rand(7) > 0.5
    packer = Packer(folder=folder)
    packer.add("real", iter(pictures.items()))
    whole = ImageSet(labels=torch.arange(count) % 7, answers=answers, only=only)
    packer.finish("real", list(pictures), whole)
    read = read_split(folder / "real.npz")
    assert read.answers is not None and torch.equal(read.answers, answers)
    assert read.only is not None and torch.equal(read.only, only)
    assert torch.equal(read.labels, whole.labels)


def test_two_splits_share_the_images_that_both_have(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    packer, names = Packer(folder=folder), list(pictures)
    for split, chosen in (("test", names), ("real", names[3:6])):
        packer.add(split, ((name, pictures[name]) for name in packer.lacks(chosen)))
        packer.finish(split, chosen, ImageSet(labels=torch.zeros(len(chosen), dtype=torch.int64)))
    assert len(list(folder.glob("*.tar"))) == 1
    test, real = (read_split(folder / f"{split}.npz") for split in ("test", "real"))
    assert numpy.array_equal(test.pil(4), real.pil(1))


def test_other_images_lie_under_other_names(folder: Path, pictures: dict[str, bytes]) -> None:
    before = read_split(packed(folder, pictures)).files
    name = next(iter(pictures))
    after = read_split(packed(folder, pictures | {name: pictures[name] + b"\0"})).files
    assert before is not None and after is not None and not set(before) & set(after)


def test_a_damaged_picture_is_named_with_its_shard(folder: Path) -> None:
    read = read_split(packed(folder, {"cat/1.png": b"no picture"}))
    with pytest.raises(DataError, match=r"train-000-\w+\.tar/cat/1\.png cannot be read: .*image"):
        read.pil(0)


def _cut_shard(folder: Path) -> None:
    (shard,) = folder.glob("*.tar")
    shard.write_bytes(shard.read_bytes()[:600])


def test_a_shard_that_was_cut_short_is_told(folder: Path, pictures: dict[str, bytes]) -> None:
    read = read_split(packed(folder, pictures))
    _cut_shard(folder)
    with pytest.raises(DataError, match=r"\.tar/.* cannot be read: its shard was cut short"):
        read.pil(3)


def test_a_shard_that_is_not_there_is_missing_data(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    index = packed(folder, pictures)
    (shard,) = folder.glob("*.tar")
    shard.unlink()
    with pytest.raises(DataMissing, match=f"{shard.name} is not there. Remove {folder} and"):
        read_split(index)


def _damaged(index: Path) -> Iterator[bytes]:
    whole = index.read_bytes()
    yield b""
    yield b"no archive"
    yield whole[: len(whole) // 2]


def test_a_damaged_index_is_told_with_what_to_do(folder: Path, pictures: dict[str, bytes]) -> None:
    index = packed(folder, pictures)
    for data in _damaged(index):
        index.write_bytes(data)
        with pytest.raises(DataError, match=f"{index} is damaged: .*Remove {folder} and pack"):
            read_split(index)


def test_a_pack_of_a_newer_vtjobs_is_refused(
    folder: Path, pictures: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = packed(folder, pictures)
    monkeypatch.setattr(packs, "FORMAT", 0)
    with pytest.raises(DataError, match="has format 1; this vtjobs reads 0"):
        read_split(index)

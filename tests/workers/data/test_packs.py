"""The images of a split in a few large files are the images that lay in small ones."""

import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.atomic_files import read_mapping, to_json, write_over
from vtjobs.jobs.grid.pack_places import contents_of
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.packs import Packer
from vtjobs.workers.data.packs import read_split as read_with
from vtjobs.workers.errors import DataError

from ...support.training import image_folder

# What a file system lets names be: any bytes but these two, and a tar file has no member without one.
PARTS = st.text(
    st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=60
).filter(lambda name: name not in (".", ".."))
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join)


def write(packer: Packer, split: str, contents: dict[str, bytes], **more: Any) -> None:
    """Pack bytes as the images of a split."""

    def read(names: Sequence[str]) -> Iterator[bytes]:
        return (contents[name] for name in names)

    images = more.pop("images", ImageSet(labels=torch.arange(len(contents))))
    packer.pack(split, list(contents), images, read=read, **more)


def packed(folder: Path, contents: dict[str, bytes], shard_bytes: int = 1 << 20) -> ImageSet:
    """Pack bytes as the images of `train`; return what is read of them."""
    write(Packer(folder=folder, shard_bytes=shard_bytes), "train", contents)
    return read_split(folder, "train")


def read_split(folder: Path, split: str) -> ImageSet:
    contents = contents_of(folder, split)
    assert contents is not None
    return read_with(folder, contents)


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
    read = packed(folder, contents, shard_bytes)
    assert members(folder) == contents
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

    read = packed(folder, pictures, shard_bytes=5000)
    assert len(list(folder.glob("*.tar"))) > 2
    for number, name in enumerate(pictures):
        with Image.open(tmp_path / "images" / name) as image:
            assert numpy.array_equal(read.pil(number), image)


def test_reading_pictures_opens_no_file(folder: Path, pictures: dict[str, bytes]) -> None:
    read = packed(folder, pictures)
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
    whole = ImageSet(labels=torch.arange(count) % 7, answers=answers, only=only)
    write(Packer(folder=folder), "real", pictures, images=whole)
    read = read_split(folder, "real")
    assert read.answers is not None and torch.equal(read.answers, answers)
    assert read.only is not None and torch.equal(read.only, only)
    assert torch.equal(read.labels, whole.labels)


def test_two_splits_share_the_images_that_both_have(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    packer = Packer(folder=folder)
    write(packer, "test", pictures, is_shared=True)
    write(packer, "real", {name: pictures[name] for name in list(pictures)[3:6]})
    assert len(list(folder.glob("*.tar"))) == 1
    test, real = (read_split(folder, split) for split in ("test", "real"))
    assert numpy.array_equal(test.pil(4), real.pil(1))


def test_other_images_lie_under_other_names_and_the_older_ones_are_removed(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    before = packed(folder, pictures).files
    name = next(iter(pictures))
    after = packed(folder, pictures | {name: pictures[name] + b"\0"}).files
    assert before is not None and after is not None and not set(before) & set(after)
    assert len(list(folder.iterdir())) == 5
    Packer(folder=folder).tidy()
    assert len(list(folder.iterdir())) == 3
    assert read_split(folder, "train").pil(0)


def test_nothing_is_removed_beside_contents_that_cannot_be_read(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    packed(folder, pictures)
    (folder / "test.json").write_text('{"format": 2, "parts": []}')
    before = sorted(folder.iterdir())
    (folder / "test-000-1234.tar").touch()
    Packer(folder=folder).tidy()
    assert sorted(folder.iterdir()) == sorted([*before, folder / "test-000-1234.tar"])


def test_what_has_changed_while_it_was_packed_cannot_be_read(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    def check() -> None:
        raise DataError("changed")

    with pytest.raises(DataError, match="changed"):
        write(Packer(folder=folder), "train", pictures, check=check)
    assert contents_of(folder, "train") is None


def test_a_damaged_picture_is_named_with_its_tar_file(folder: Path) -> None:
    read = packed(folder, {"cat/1.png": b"no picture"})
    with pytest.raises(DataError, match=r"train-000-\w+\.tar/cat/1\.png cannot be read: .*image"):
        read.pil(0)


def test_a_tar_file_that_is_cut_while_it_is_read_is_told(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    read = packed(folder, pictures)
    _cut(folder, "*.tar")
    with pytest.raises(DataError, match=r"\.tar/.* cannot be read: its tar file was cut short"):
        read.pil(3)


def _cut(folder: Path, pattern: str) -> None:
    (path,) = folder.glob(pattern)
    path.write_bytes(path.read_bytes()[:600])


@pytest.mark.parametrize("pattern", ["*.tar", "*.npz"])
@pytest.mark.parametrize("happens", [_cut, lambda folder, one: next(folder.glob(one)).unlink()])
def test_a_pack_with_a_file_that_is_cut_or_gone_is_none(
    folder: Path, pictures: dict[str, bytes], pattern: str, happens: Any
) -> None:
    packed(folder, pictures)
    happens(folder, pattern)
    assert contents_of(folder, "train") is None


def test_an_index_whose_bytes_have_changed_is_told(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    packed(folder, pictures)
    (index,) = folder.glob("*.npz")
    whole = index.read_bytes()
    for position in range(0, len(whole), 7):
        index.write_bytes(
            whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :]
        )
        try:
            read_split(folder, "train")
        except DataError as error:
            assert f"the index {index} of a packed dataset is damaged" in str(error)


@pytest.mark.parametrize(
    "change", [{"format": 2}, {"format": 2, "sizes": None}, {"index": 3}, {"sizes": {"gone": 1}}]
)
def test_contents_of_another_form_are_none(
    folder: Path, pictures: dict[str, bytes], change: dict[str, Any]
) -> None:
    packed(folder, pictures)
    path = folder / "train.json"
    write_over(path, to_json(read_mapping(path) | change))
    assert contents_of(folder, "train") is None


def test_a_pack_in_a_shared_folder_is_for_the_group(
    folder: Path, pictures: dict[str, bytes]
) -> None:
    folder.chmod(0o2770)
    packed(folder, pictures)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o660}

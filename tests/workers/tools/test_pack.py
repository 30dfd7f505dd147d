"""`data prepare --pack` copies a dataset's images into a few large files."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torchvision

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue, dataset_files
from vtjobs.jobs.run.settings import DatasetSettings
from vtjobs.workers.data.datasets import load
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.errors import DataError
from vtjobs.workers.tools.prepare import packed, prepare

from ...support.tiny_datasets import write_datasets
from ...support.training import image_folder, on_folder, run_spec


def loaded(dataset: DatasetSettings, split: str, root: Path, folder: Path | None) -> ImageSet:
    return load(dataset, split, data_root=root, paths={dataset.fingerprint: str(folder)})


def is_from_pack(images: ImageSet) -> bool:
    assert images.files is not None
    return all("packed" in path.parts for path in images.files)


def are_equal(one: ImageSet, other: ImageSet) -> bool:
    pixels = all(numpy.array_equal(one.pil(index), other.pil(index)) for index in range(len(one)))
    return torch.equal(one.labels, other.labels) and pixels


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder with a few images of every layout; the catalogue expects no more."""
    root = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        written = write_datasets(root, train=6, test=4)
        counts = {**written.counts, "inat2018_genus": written.counts["inat2018"]}
        for name, (train, test) in counts.items():
            patch.setitem(catalogue.datasets()[name], "train", train)
            patch.setitem(catalogue.datasets()[name], "test", test)
        for kind, name, value in written.checksums:
            patch.setattr(getattr(torchvision.datasets, kind), name, value)
        yield root


@pytest.mark.parametrize(
    "name", ["imagenet1k", "imagenet100", "tiny_imagenet", "clipart", "inat2018_genus", "food101"]
)
def test_a_packed_dataset_is_the_dataset_that_its_files_are(name: str, published: Path) -> None:
    dataset = catalogue.dataset(name)
    before = {split: loaded(dataset, split, published, None) for split in ("train", "test")}
    told = packed(name, published)
    assert told.startswith(f"{published}/packed/{name}: 4 files, ")
    for split, images in before.items():
        now = loaded(dataset, split, published, None)
        assert is_from_pack(now) and not is_from_pack(images)
        assert are_equal(now, images)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return image_folder(tmp_path / "mine", train=4, test=3)


def test_the_files_of_a_packed_dataset_may_be_removed(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue.datasets()["clipart"], "classes", 2)
    root = tmp_path / "data"
    shutil.copytree(published / "domainnet", root / "domainnet")
    packed("clipart", root)
    shutil.rmtree(root / "domainnet")
    assert dataset_files.missing("clipart", root) is None
    assert dataset_files.missing("sketch", root) == "no domainnet/sketch_train.txt"
    assert prepare("clipart", root, download=False).endswith(", packed")
    # There is nothing to pack anew, and nothing is lost.
    assert packed("clipart", root).startswith(f"{root}/packed/clipart: 4 files")


def test_a_folder_that_has_changed_is_not_read_from_its_old_pack(tmp_path: Path, own: Path) -> None:
    packed(str(own), tmp_path)
    before = on_folder(run_spec(), own).dataset
    assert is_from_pack(loaded(before, "train", tmp_path, own))
    first, second = sorted((own / "train" / "class-0").iterdir())[:2]
    shutil.copy(second, first)
    after = on_folder(run_spec(), own).dataset
    assert not is_from_pack(loaded(after, "train", tmp_path, own))
    packed(str(own), tmp_path)
    now = loaded(after, "train", tmp_path, own)
    assert is_from_pack(now)
    assert numpy.array_equal(now.pil(0), now.pil(1))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("digits", "digits lies in few files already"),
        ("cifar10", "cifar10 lies in few files already"),
        ("ade20k", "the images of ade20k have masks beside them"),
        ("coco2017", "the images of coco2017 have objects beside them"),
        ("weights:resnet18", "weights:resnet18 is one file"),
    ],
)
def test_what_cannot_be_packed_is_refused(name: str, reason: str, published: Path) -> None:
    with pytest.raises(BadInput, match=f"--pack: {reason}"):
        packed(name, published)
    assert not list((published / "packed").glob(f"*{name}*"))


def test_a_pack_is_verified_as_its_files_are(tmp_path: Path, own: Path) -> None:
    packed(str(own), tmp_path)
    (shard,) = (tmp_path / "packed").glob("*/train-*.tar")
    with shard.open("r+b") as stream:
        stream.truncate(700)
    with pytest.raises(DataError, match="its shard was cut short"):
        prepare(str(own), tmp_path, download=False)


def test_a_pack_that_has_no_room_is_not_begun(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(DataError, match=r"cannot be packed to .*KiB are needed, 1000 B are free"):
        packed(str(own), tmp_path)
    assert list((tmp_path / "packed").iterdir()) == []


class Killed(BaseException):
    """What a process that is killed does next: nothing."""


@pytest.mark.parametrize("call", range(1, 12))
def test_a_pack_that_is_killed_leaves_the_old_one_and_is_made_again(
    call: int, tmp_path: Path, own: Path
) -> None:
    dataset = on_folder(run_spec(), own).dataset
    packed(str(own), tmp_path)
    child = os.fork()
    if not child:
        _die_at(call)
        packed(str(own), tmp_path)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "it died where it was told to"
    assert len(loaded(dataset, "train", tmp_path, own)) == 8
    packed(str(own), tmp_path)
    assert is_from_pack(loaded(dataset, "train", tmp_path, own))
    assert len(list((tmp_path / "packed").iterdir())) == 1


def _die_at(call: int) -> None:
    """End this process, as a kill does, before one of the calls that change what is on disk."""
    count = 0

    def counted(real: Any) -> Any:
        def call_or_die(*words: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == call:
                os._exit(0)
            return real(*words, **named)

        return call_or_die

    os.fsync = counted(os.fsync)
    os.rename = counted(os.rename)
    os.mkdir = counted(os.mkdir)

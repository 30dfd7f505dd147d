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
from vtjobs.workers.tools import pack as module
from vtjobs.workers.tools.pack import _alone as alone
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
    assert told.startswith(f"{published}/packed/{name}: 6 files, ")
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
    assert packed("clipart", root).startswith(f"{root}/packed/clipart: 6 files")


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
        stream.seek(512)
        stream.write(bytes(64))
    with pytest.raises(DataError, match="1 image cannot be read"):
        prepare(str(own), tmp_path, download=False)


def test_a_pack_that_has_no_room_is_not_begun(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(
        DataError, match=r"cannot be packed to .*KiB are needed for train, 1000 B are free"
    ):
        packed(str(own), tmp_path)
    assert not list((tmp_path / "packed").rglob("*.tar"))


@pytest.fixture
def few(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with one domain, and with ImageNet and a further set of it."""
    root = tmp_path / "few"
    for name in ("domainnet", "imagenet1k"):
        shutil.copytree(published / name, root / name)
    wnid = catalogue.class_list("imagenet100")[0]
    (root / "imagenet1k" / "imagenet-a" / wnid).mkdir(parents=True)
    image = next((root / "imagenet1k" / "val").rglob("*.JPEG"))
    shutil.copy(image, root / "imagenet1k" / "imagenet-a" / wnid)
    monkeypatch.setitem(catalogue.datasets()["imagenet1k"]["sets"]["a"], "count", 1)
    return root


def test_what_is_only_in_the_pack_stays_when_it_is_packed_again(few: Path) -> None:
    imagenet = catalogue.dataset("imagenet1k")
    packed("imagenet1k", few)
    shutil.rmtree(few / "imagenet1k" / "imagenet-a")
    packed("imagenet1k", few)
    assert is_from_pack(loaded(imagenet, "a", few, None))
    shutil.rmtree(few / "imagenet1k" / "train")
    packed("imagenet1k", few)
    for split in ("train", "test", "a"):
        assert is_from_pack(loaded(imagenet, split, few, None))


def test_the_datasets_that_still_need_the_files_are_named(few: Path) -> None:
    assert packed("imagenet1k", few).endswith("The own files are still read for: imagenet100")
    assert "still read" not in packed("imagenet100", few)


def test_labels_beside_removed_images_are_missing_data(few: Path) -> None:
    packed("imagenet1k", few)
    shutil.rmtree(few / "imagenet1k")
    (few / "imagenet1k").mkdir()
    (few / "imagenet1k" / "real.json").write_bytes(bytes(300_000))
    assert dataset_files.missing("imagenet1k", few, ["a"]) is None
    assert dataset_files.missing("imagenet1k", few, ["real"]) == "no imagenet1k/train/"


def test_a_further_set_that_is_damaged_is_left_out_with_a_word(
    few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (few / "imagenet1k" / "imagenet-a" / "odd").mkdir()
    packed("imagenet1k", few)
    assert "set a is not packed: " in capsys.readouterr().err
    assert is_from_pack(loaded(catalogue.dataset("imagenet1k"), "test", few, None))


def test_a_damaged_pack_is_made_again_and_nothing_is_downloaded(few: Path) -> None:
    packed("clipart", few)
    (index,) = (few / "packed" / "clipart").glob("train-*.npz")
    index.write_bytes(bytes(index.stat().st_size))
    with pytest.raises(DataError, match=f"the index {index} of a packed dataset is damaged"):
        loaded(catalogue.dataset("clipart"), "train", few, None)
    packed("clipart", few)
    assert is_from_pack(loaded(catalogue.dataset("clipart"), "train", few, None))


def test_a_folder_whose_pack_is_damaged_is_packed_again(tmp_path: Path, own: Path) -> None:
    packed(str(own), tmp_path)
    (index,) = (tmp_path / "packed").glob("*/train-*.npz")
    index.write_bytes(bytes(index.stat().st_size))
    packed(str(own), tmp_path)
    dataset = on_folder(run_spec(), own).dataset
    assert is_from_pack(loaded(dataset, "train", tmp_path, own))


def test_of_two_at_once_one_is_refused(few: Path) -> None:
    with alone(few / "packed" / "clipart"):
        with pytest.raises(DataError, match=r"another process packs .*clipart just now"):
            packed("clipart", few)
    assert packed("clipart", few)


def test_files_that_change_while_they_are_packed_make_no_pack(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = on_folder(run_spec(), own).dataset
    first, second = sorted((own / "train" / "class-0").iterdir())[:2]
    real = module._contents

    def changing(*words: Any) -> Iterator[bytes]:
        yield from real(*words)
        shutil.copy(second, first)

    monkeypatch.setattr(module, "_contents", changing)
    with pytest.raises(DataError, match="changed while it was packed"):
        packed(str(own), tmp_path)
    assert not is_from_pack(loaded(dataset, "train", tmp_path, own))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_pack_that_another_user_cannot_enter_keeps_nobody_from_the_files(few: Path) -> None:
    packed("clipart", few)
    (few / "packed").chmod(0o700)
    for folder in (few, *few.parents):
        folder.chmod(folder.stat().st_mode | 0o755)
    child = os.fork()
    if not child:
        os.setuid(65534)
        found = loaded(catalogue.dataset("clipart"), "train", few, None)
        os._exit(int(is_from_pack(found)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_pack_that_is_killed_anywhere_leaves_the_old_one_until_the_new_one_is_whole(
    few: Path,
) -> None:
    dataset = catalogue.dataset("clipart")
    packed("clipart", few)
    before = shards(few)
    first, second = sorted((few / "domainnet" / "clipart").rglob("*.*"))[:2]
    pictures = first.read_bytes(), second.read_bytes()
    seen, call, is_killed = [], 0, True
    while is_killed:
        call += 1
        first.write_bytes(pictures[call % 2])
        is_killed = _is_killed_at(call, few)
        for split, count in (("train", 6), ("test", 4)):
            now = loaded(dataset, split, few, None)
            assert is_from_pack(now) and len(now) == count
        seen.append(shards(few) == before)
    assert call > 10 and {*seen} == {True, False}
    packed("clipart", few)
    assert len(list((few / "packed" / "clipart").iterdir())) == 6


def shards(root: Path) -> set[Path]:
    """Return the tar files that runs would read."""
    parts = [loaded(catalogue.dataset("clipart"), split, root, None) for split in ("train", "test")]
    paths = [path for images in parts for path in images.files or ()]
    return {next(one for one in path.parents if one.suffix == ".tar") for path in paths}


def _is_killed_at(call: int, root: Path) -> bool:
    """Pack in a process that is killed before a call that changes the disk; False: it came through."""
    child = os.fork()
    if not child:
        _die_at(call)
        packed("clipart", root)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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

    for name in ("fsync", "rename", "replace", "unlink", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))

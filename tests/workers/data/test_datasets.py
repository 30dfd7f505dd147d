"""The readers of datasets, on small files in the real formats."""

from pathlib import Path

import numpy
import pytest
import torch
from sklearn.datasets import load_digits
from torchvision import datasets as published

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.settings import DatasetSettings
from vtjobs.jobs.run.spec import STREAMS, seeds_of
from vtjobs.jobs.values import changed
from vtjobs.workers.data import datasets
from vtjobs.workers.data.datasets import labels_of, load, load_part
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.errors import DataError
from vtjobs.workers.randomness import Streams

from ...support.published import md5, python2_pickle, write_cifar, write_flowers, write_svhn
from ...support.training import image_folder, on_folder, run_spec


def _facts(name: str, **sizes: int) -> DatasetSettings:
    return changed(catalogue.dataset(name), **sizes)


def _load(facts: DatasetSettings, split: str, root: Path) -> ImageSet:
    return load(facts, split, data_root=root, paths={})


def test_the_digits_are_halved_without_an_image_in_both(tmp_path: Path) -> None:
    train, test = (_load(_facts("digits"), split, tmp_path) for split in ("train", "test"))
    assert (len(train), len(test)) == (899, 898)
    assert train.images is not None and test.images is not None
    assert train.images.shape == (899, 1, 8, 8) and train.images.dtype == torch.uint8
    source = load_digits()
    both = torch.empty(1797, 8, 8)
    both[0::2], both[1::2] = train.images[:, 0].float(), test.images[:, 0].float()
    assert numpy.array_equal(both.numpy(), numpy.round(source.images * 255 / 16))
    labels = torch.empty(1797)
    labels[0::2], labels[1::2] = train.labels.float(), test.labels.float()
    assert numpy.array_equal(labels.numpy(), source.target)
    assert all(int(part.labels.bincount().min()) >= 80 for part in (train, test))


@pytest.mark.paper("DR-32", "RV-25")
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_is_read_as_torchvision_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = published.CIFAR10 if name == "cifar10" else published.CIFAR100
    images, labels = write_cifar(tmp_path / name, kind, each=4, patch=monkeypatch)
    train = _load(_facts(name, train=len(labels), test=4), "train", tmp_path)
    assert train.images is not None
    assert numpy.array_equal(train.images.numpy(), images)
    assert train.labels.tolist() == labels
    # torchvision reads a file of class names too.
    meta = tmp_path / name / kind.base_folder / kind.meta["filename"]
    meta.write_bytes(python2_pickle({kind.meta["key"].encode(): []}))
    monkeypatch.setitem(kind.meta, "md5", md5(meta))
    for split in ("train", "test"):
        mine = _load(_facts(name, train=len(labels), test=4), split, tmp_path)
        theirs = kind(str(tmp_path / name), train=split == "train")
        assert mine.labels.tolist() == theirs.targets
        assert mine.images is not None
        assert numpy.array_equal(mine.images.permute(0, 2, 3, 1).numpy(), theirs.data)
        assert mine.pil(1).tobytes() == theirs[1][0].tobytes()


@pytest.mark.paper("GR-07")
def test_the_coarse_classes_of_cifar_100_lie_in_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, fine = write_cifar(tmp_path / "cifar100", published.CIFAR100, each=4, patch=monkeypatch)
    facts = _facts("cifar100_coarse", train=4, test=4)
    assert facts.classes == 20
    train = _load(facts, "train", tmp_path)
    assert train.labels.tolist() == [label // 5 for label in fine]


def test_classes_of_another_level_are_those_of_the_same_images(tmp_path: Path) -> None:
    facts = changed(_facts("digits_parity"), val=0.2)
    for split in ("train", "val", "test"):
        part = load_part(facts, split, Streams(seeds_of(0)), data_root=tmp_path, paths={})
        fine = labels_of("digits", part, facts, split, data_root=tmp_path, paths={})
        assert len(fine) == len(part) and set(fine.tolist()) == set(range(10))
        assert torch.equal(fine % 2, part.labels)


def test_a_hostile_pickle_in_place_of_cifar_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar(tmp_path / "cifar10", published.CIFAR10, each=2, patch=monkeypatch)
    evil, witness = (
        tmp_path / "cifar10" / published.CIFAR10.base_folder / "test_batch",
        tmp_path / "witness",
    )
    evil.write_bytes(b"cos\nsystem\n(S'touch " + str(witness).encode() + b"'\ntR.")
    with pytest.raises(DataError, match="vtjobs data prepare cifar10"):
        _load(_facts("cifar10", train=10, test=2), "test", tmp_path)
    # Even where its checksum were right.
    monkeypatch.setattr(published.CIFAR10, "test_list", [["test_batch", md5(evil)]])
    with pytest.raises(DataError, match=r"os\.system is not allowed"):
        _load(_facts("cifar10", train=10, test=2), "test", tmp_path)
    assert not witness.exists()


def test_svhn_is_read_with_zeros_as_class_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write_svhn(tmp_path / "svhn", published.SVHN, each=7, patch=monkeypatch)
    for split in ("train", "test"):
        read = _load(_facts("svhn", train=7, test=7), split, tmp_path)
        images, digits = written[split]
        assert read.images is not None
        assert numpy.array_equal(read.images.numpy(), images)
        assert read.labels.tolist() == digits.tolist() and read.labels.dtype == torch.int64


def test_flowers_train_on_the_official_train_and_val_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = write_flowers(tmp_path / "flowers102", published.Flowers102, patch=monkeypatch)
    for split, count in (("train", 6), ("test", 3)):
        read = _load(_facts("flowers102", train=6, test=3), split, tmp_path)
        assert sorted(read.labels.tolist()) == sorted(labels[split])
        # Image number n, of height 20 + n, has label n - 1.
        assert [read.pil(index).size[1] - 21 for index in range(count)] == read.labels.tolist()


def test_a_folder_is_read_by_its_path_with_classes_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = image_folder(tmp_path / "images", train=3, test=2)
    facts = on_folder(run_spec(), root).dataset
    paths = {facts.fingerprint: str(root)}
    train = load(facts, "train", data_root=tmp_path, paths=paths)
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert train.pil(1).mode == "RGB" and train.pil(1).size == (17, 21)
    (root / "test").rename(root / "val")
    assert len(load(facts, "test", data_root=tmp_path, paths=paths)) == 4


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "flowers102"])
def test_a_dataset_that_is_not_there_names_the_command_that_gets_it(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(DataError, match=f"Run: vtjobs data prepare {name}"):
        _load(_facts(name), "train", tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    facts = changed(_facts("digits"), name="folder", fingerprint="manifest:1")
    with pytest.raises(DataError, match=f"{tmp_path}/gone/train does not exist"):
        load(facts, "train", data_root=tmp_path, paths={"manifest:1": f"{tmp_path}/gone"})


@pytest.mark.parametrize("name", ["cifar10", "svhn"])
def test_damaged_files_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "cifar10":
        write_cifar(tmp_path / name, published.CIFAR10, each=2, patch=monkeypatch)
    else:
        write_svhn(tmp_path / name, published.SVHN, each=10, patch=monkeypatch)
    victim = next(path for path in sorted((tmp_path / name).rglob("*")) if path.is_file())
    damaged = bytearray(victim.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    victim.write_bytes(damaged)
    with pytest.raises(DataError, match="vtjobs data prepare"):
        for split in ("train", "test"):
            _load(_facts(name, train=10, test=10 if name == "svhn" else 2), split, tmp_path)


@pytest.mark.paper("DR-32", "DR-33", "DR-62")
def test_another_number_of_images_than_the_catalogue_says_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_svhn(tmp_path / "svhn", published.SVHN, each=7, patch=monkeypatch)
    with pytest.raises(DataError, match="7 train images, expected 73257"):
        _load(_facts("svhn"), "train", tmp_path)


def test_an_unknown_dataset_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown dataset 'mnist'"):
        _load(changed(_facts("digits"), name="mnist"), "train", tmp_path)


def test_the_small_digits_have_two_test_sets_without_an_image_in_common(tmp_path: Path) -> None:
    facts = _facts("digits300")
    parts = [_load(facts, split, tmp_path) for split in ("train", "test", "independent")]
    assert [len(part) for part in parts] == [300, 749, 748]
    seen = [image.numpy().tobytes() for part in parts for image in part.images]
    whole = [
        image.numpy().tobytes()
        for split in ("train", "test")
        for image in _load(_facts("digits"), split, tmp_path).images
    ]
    assert sorted(seen) == sorted(whole)
    assert all(int(part.labels.bincount().min()) > 20 for part in parts)


def test_a_held_out_part_has_each_class_in_its_share_and_moves_with_the_split_stream_alone(
    tmp_path: Path,
) -> None:
    facts = changed(_facts("digits"), val=0.1)

    def parts(**seeds: int) -> list[ImageSet]:
        streams = Streams(seeds_of(0) | seeds)
        return [
            load_part(facts, split, streams, data_root=tmp_path, paths={})
            for split in ("train", "val")
        ]

    train, val = parts()
    assert (len(train), len(val)) == (809, 90)
    assert int(val.labels.bincount().min()) >= 8 and int(val.labels.bincount().max()) <= 10
    whole = _load(facts, "train", tmp_path)
    both = sorted(image.numpy().tobytes() for part in (train, val) for image in part.images)
    assert both == sorted(image.numpy().tobytes() for image in whole.images)
    others = {stream: 7 for stream in STREAMS if stream != "split"}
    assert torch.equal(parts(**others)[1].images, val.images)
    assert not torch.equal(parts(split=7)[1].images, val.images)


def test_nothing_is_held_out_where_no_run_asks_for_it(tmp_path: Path) -> None:
    facts = _facts("digits")
    assert (
        len(load_part(facts, "train", Streams(seeds_of(0)), data_root=tmp_path, paths={}))
        == facts.train
    )


def test_too_few_images_of_a_class_for_a_held_out_part_are_told(tmp_path: Path) -> None:
    facts = changed(_facts("digits"), val=0.007)
    with pytest.raises(DataError, match="cannot hold out a stratified part"):
        load_part(facts, "val", Streams(seeds_of(0)), data_root=tmp_path, paths={})


def test_a_set_that_a_dataset_has_not_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dataset digits has no set 'v2'"):
        _load(_facts("digits"), "v2", tmp_path)


def test_a_folders_further_set_has_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = image_folder(tmp_path / "images", train=3, test=2)
    facts = on_folder(run_spec(), root).dataset
    (root / "night").symlink_to(root / "test")
    paths = {facts.fingerprint: str(root)}
    assert len(load(facts, "night", data_root=tmp_path, paths=paths)) == 4
    (root / "odd" / "class-1").mkdir(parents=True)
    (root / "odd" / "class-1" / "0.png").write_bytes(
        (root / "test" / "class-1" / "0.png").read_bytes()
    )
    with pytest.raises(DataError, match="has different classes from"):
        load(facts, "odd", data_root=tmp_path, paths=paths)


def test_every_dataset_of_the_catalogue_has_a_loader() -> None:
    assert datasets._LOADERS.keys() == catalogue.datasets().keys()

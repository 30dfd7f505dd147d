"""Datasets that nobody may download for others are made from the archives of their makers."""

import io
import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.archives import sources
from vtjobs.jobs.grid.dataset_files import FETCHED, remedy
from vtjobs.jobs.values import changed
from vtjobs.workers.data.datasets import load
from vtjobs.workers.errors import DataError
from vtjobs.workers.tools import unpack as module
from vtjobs.workers.tools.prepare import prepare

# Of each val image, by its number: ids of the development kit, which are no places in an order.
TRUTH = [12, 11, 13]
IDS = {"n01": 11, "n02": 12, "n03": 13}
MANY = {f"n{number:04}": number for number in range(1, 1001)}


def picture(level: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (level, 0, 0)).save(stream, "JPEG")
    return stream.getvalue()


def tar(path: Path, files: dict[str, bytes]) -> bytes:
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path.read_bytes()


def meta(ids: Mapping[str, int] = IDS) -> bytes:
    """A development kit's list of classes: leaves and an inner node."""
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("num_children", "O")]
    rows = [(number, name, 0) for name, number in ids.items()] + [(1001, "n00", 3)]
    stream = io.BytesIO()
    savemat(stream, {"synsets": np.array([[row] for row in rows], dtype=kinds)})
    return stream.getvalue()


def imagenet(folder: Path, ids: Mapping[str, int] = IDS, truth: Sequence[int] = TRUTH) -> None:
    """Write ImageNet's three archives, with two training images and one val image of a class."""
    folder.mkdir()
    levels = {name: place % 6 * 40 for place, name in enumerate(ids)}
    inside = folder / "class.tar"
    classes = {
        f"{name}.tar": tar(inside, {f"{name}_{one}.JPEG": picture(level) for one in (1, 2)})
        for name, level in levels.items()
    }
    inside.unlink()
    tar(folder / "ILSVRC2012_img_train.tar", classes)
    names = {number: name for name, number in ids.items()}
    val = {
        f"ILSVRC2012_val_{place:08}.JPEG": picture(levels[names[number]])
        for place, number in enumerate(truth, start=1)
    }
    tar(folder / "ILSVRC2012_img_val.tar", val)
    kit = {
        "meta.mat": meta(ids),
        "ILSVRC2012_validation_ground_truth.txt": "".join(f"{n}\n" for n in truth).encode(),
    }
    inside_kit = {f"ILSVRC2012_devkit_t12/data/{name}": content for name, content in kit.items()}
    tar(folder / "ILSVRC2012_devkit_t12.tar.gz", inside_kit)


def sized(patch: pytest.MonkeyPatch, name: str, **facts: int) -> None:
    """Have the catalogue expect so many images, and archives with any checksum."""
    for key, value in facts.items():
        patch.setitem(catalogue.datasets()[name], key, value)
    known = sources()[name]
    loose = tuple(changed(archive, md5=None) for archive in known.archives)
    patch.setattr(module, "sources", lambda: {name: changed(known, archives=loose)})


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ImageNet's archives of three classes."""
    sized(monkeypatch, "imagenet1k", classes=3, train=6, test=3)
    imagenet(tmp_path / "archives")
    return tmp_path / "archives"


def levels(root: Path, split: str) -> list[tuple[int, int]]:
    """Return label and colour of each image."""
    found = load(catalogue.dataset("imagenet1k"), split, data_root=root, paths={})
    return [
        (int(label), round(found.pil(index).getpixel((0, 0))[0] / 40))
        for index, label in enumerate(found.labels)
    ]


def test_imagenet_is_made_from_its_three_archives(tmp_path: Path, archives: Path) -> None:
    root = tmp_path / "data"
    told = prepare("imagenet1k", root, source=archives)
    assert told.startswith("imagenet1k: 6 train, 3 test, 3 classes")
    assert levels(root, "train") == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2), (2, 2)]
    assert levels(root, "test") == [(0, 0), (1, 1), (2, 2)]
    assert [path.name for path in root.iterdir()] == ["imagenet1k"], "nothing is left beside it"


def test_what_is_whole_already_is_not_unpacked_again(
    tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    prepare("imagenet1k", root, source=archives)
    monkeypatch.delattr(module, "_UNPACKERS")
    told = prepare("imagenet1k", root, source=archives)
    assert told.endswith("(it was whole: nothing was unpacked)")


@pytest.mark.parametrize("step", ["_write", "_check", "_require_verified", "_move_in"])
@pytest.mark.parametrize("calls", [1, 2])
def test_a_killed_attempt_is_completed_by_the_next_one(
    tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch, step: str, calls: int
) -> None:
    root, real, left = tmp_path / "data", getattr(module, step), [calls]

    def killed(*given: Any) -> Any:
        found = real(*given)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, step, killed)
        if (step, calls) == ("_require_verified", 2):
            prepare("imagenet1k", root, source=archives)
        else:
            with pytest.raises(KeyboardInterrupt):
                prepare("imagenet1k", root, source=archives)
    assert prepare("imagenet1k", root, source=archives).startswith("imagenet1k: 6 train")
    assert levels(root, "test") == [(0, 0), (1, 1), (2, 2)]
    assert [path.name for path in root.iterdir()] == ["imagenet1k"]


def test_what_is_there_in_part_is_put_aside_and_not_deleted(tmp_path: Path, archives: Path) -> None:
    old = tmp_path / "data" / "imagenet1k" / "train" / "n01"
    old.mkdir(parents=True)
    (old / "mine.JPEG").write_bytes(picture(1))
    prepare("imagenet1k", tmp_path / "data", source=archives)
    kept = tmp_path / "data" / "imagenet1k" / "train.before" / "n01" / "mine.JPEG"
    assert kept.is_file()


def test_what_was_put_aside_before_is_never_replaced(tmp_path: Path, archives: Path) -> None:
    place = tmp_path / "data" / "imagenet1k"
    for name in ("train", "train.before"):
        (place / name).mkdir(parents=True)
    with pytest.raises(DataError, match=r"train and .*train\.before are in the way"):
        prepare("imagenet1k", tmp_path / "data", source=archives)
    (place / "train.before").rmdir()
    assert prepare("imagenet1k", tmp_path / "data", source=archives).startswith("imagenet1k: 6")


def test_a_development_kit_of_other_images_is_an_error(tmp_path: Path, archives: Path) -> None:
    inside = "ILSVRC2012_devkit_t12/data"
    short = {
        f"{inside}/meta.mat": meta(),
        f"{inside}/ILSVRC2012_validation_ground_truth.txt": b"11\n",
    }
    tar(archives / "ILSVRC2012_devkit_t12.tar.gz", short)
    with pytest.raises(DataError, match=r"ILSVRC2012_img_val\.tar cannot be unpacked"):
        prepare("imagenet1k", tmp_path / "data", source=archives)


def imagenet_v2(folder: Path) -> None:
    place = "imagenetv2-matched-frequency-format-val"
    files = {f"{place}/{label}/a.jpeg": picture(label % 6 * 40) for label in range(1000)}
    tar(folder / "imagenetv2-matched-frequency.tar.gz", files)


def test_a_further_set_is_unpacked_with_the_dataset_or_added_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch, "imagenet1k", train=2000, test=1000)
    monkeypatch.setitem(catalogue.datasets()["imagenet1k"]["sets"]["v2"], "count", 1000)
    archives = tmp_path / "archives"
    imagenet(archives, MANY, list(MANY.values()))
    later = tmp_path / "later"
    later.mkdir()
    imagenet_v2(later)
    prepare("imagenet1k", tmp_path / "one", source=archives)
    assert prepare("imagenet1k", tmp_path / "one", source=later) == "imagenet1k: set v2"
    imagenet_v2(archives)
    prepare("imagenet1k", tmp_path / "two", source=archives)
    for name in ("one", "two"):
        assert levels(tmp_path / name, "v2")[:3] == [(0, 0), (1, 1), (2, 2)]
        assert [path.name for path in (tmp_path / name).iterdir()] == ["imagenet1k"]


def test_several_further_sets_are_added_from_what_a_folder_has_of_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    archives: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = catalogue.datasets()["imagenet1k"]["sets"]
    fogs = [f"c_fog_{severity}" for severity in range(1, 6)]
    for name in ("real", "a", *fogs, *(one for one in sets if re.match("c_(br|fr|sn)", one))):
        monkeypatch.setitem(sets[name], "count", 1)
    root = tmp_path / "data"
    prepare("imagenet1k", root, source=archives)
    assert "sets that are not there: v2, real, a, r, sketch, c_* (75)" in capsys.readouterr().err
    (archives / "real.json").write_text(json.dumps([[1, 2], [], []]))
    names = sorted(path.name for path in (root / "imagenet1k" / "train").iterdir())
    # Beside its place a set is read without the train part.
    known = SimpleNamespace(label_names=lambda: names)
    monkeypatch.setattr("timm.data.ImageNetInfo", lambda _: known)
    tar(archives / "imagenet-a.tar", {f"imagenet-a/{names[2]}/x.jpg": picture(80)})
    corruptions = ("brightness", "fog", "frost", "snow")
    weather = {
        f"{name}/{severity}/{names[1]}/x.JPEG": picture(severity * 40)
        for name in corruptions
        for severity in range(1, 6)
    }
    tar(archives / "weather.tar", weather)
    assert prepare("imagenet1k", root, source=archives) == "imagenet1k: set real, a, c_* (20)"
    assert levels(root, "a") == [(2, 2)]
    assert [levels(root, fog) for fog in fogs] == [[(1, n)] for n in range(1, 6)]
    assert [label for label, _ in levels(root, "real")] == [1]
    assert sorted(path.name for path in root.iterdir()) == ["imagenet1k"]
    # A later archive leaves what an earlier one brought.
    noise = {
        f"{name}_noise/{severity}/{names[0]}/x.JPEG": picture(severity * 40)
        for name in ("gaussian", "impulse", "shot")
        for severity in range(1, 6)
    }
    for one in (archives / "weather.tar", archives / "imagenet-a.tar"):
        one.unlink()
    for one in sets:
        if one.startswith(("c_ga", "c_im", "c_sh")):
            monkeypatch.setitem(sets[one], "count", 1)
    tar(archives / "noise.tar", noise)
    assert prepare("imagenet1k", root, source=archives) == "imagenet1k: set c_* (15)"
    assert levels(root, "c_shot_noise_2") == [(0, 2)] and levels(root, "c_fog_2") == [(1, 2)]


def test_a_further_set_that_is_missing_is_named_with_its_own_archive_and_page(
    tmp_path: Path,
) -> None:
    for split in ("train", "val"):
        for label in range(1000):
            (tmp_path / "imagenet1k" / split / str(label)).mkdir(parents=True)
    found = remedy("imagenet1k", tmp_path, ["v2"])
    assert found.startswith("Get imagenetv2-matched-frequency.tar.gz from https://github.com/modes")


@pytest.mark.parametrize("suffix", ["zip", "tgz"])
@pytest.mark.parametrize("place", [0.3, 0.6, 0.999])
def test_a_damaged_archive_is_an_error_wherever_the_damage_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, place: float
) -> None:
    sized(monkeypatch, "cub200")
    known = module.sources()["cub200"]
    file = f"CUB_200_2011.{suffix}"
    archive = changed(known.archives[0], file=file)
    monkeypatch.setattr(module, "sources", lambda: {"cub200": changed(known, archives=(archive,))})
    content = np.random.default_rng(0).bytes(1 << 16)
    if suffix == "zip":
        with zipfile.ZipFile(tmp_path / file, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("CUB_200_2011/images.txt", content)
    else:
        tar(tmp_path / file, {"CUB_200_2011/images.txt": content})
    whole = bytearray((tmp_path / file).read_bytes())
    at = int(len(whole) * place)
    whole[at : at + 4] = bytes(255 - byte for byte in whole[at : at + 4])
    (tmp_path / file).write_bytes(whole)
    # The name of a file can be damaged, too.
    with pytest.raises(DataError, match=r"cannot be unpacked|is not the dataset"):
        prepare("cub200", tmp_path / "data", source=tmp_path)


def test_a_data_folder_that_cannot_be_written_is_an_error(tmp_path: Path, archives: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".imagenet1k.unpacked").write_text("a file")
    with pytest.raises(DataError, match="cannot be unpacked"):
        prepare("imagenet1k", tmp_path / "data", source=archives)


def test_after_a_kill_at_the_end_data_that_is_lost_later_is_unpacked_again(
    tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    real = shutil.rmtree

    def killed(path: Path, **options: Any) -> None:
        if path.suffix == ".unpacked":
            raise KeyboardInterrupt
        real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare("imagenet1k", root, source=archives)
    (root / "imagenet1k").rename(tmp_path / "lost")
    assert prepare("imagenet1k", root, source=archives).startswith("imagenet1k: 6 train")
    assert [path.name for path in root.iterdir()] == ["imagenet1k"]


@pytest.mark.parametrize("name", ["weights:resnet18", "./folder"])
def test_only_datasets_come_in_archives(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="comes in no archives"):
        prepare(name, tmp_path, source=tmp_path)


def test_what_the_folder_lacks_is_named_with_the_page_that_has_it(
    tmp_path: Path, archives: Path
) -> None:
    (archives / "ILSVRC2012_img_val.tar").unlink()
    with pytest.raises(BadInput, match=r"no ILSVRC2012_img_val\.tar\. See https://image-net"):
        prepare("imagenet1k", tmp_path / "data", source=archives)
    assert not (tmp_path / "data").exists()


def test_an_archive_with_another_checksum_is_not_unpacked(
    tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "sources", sources)
    with pytest.raises(DataError, match="is damaged or another file: md5"):
        prepare("imagenet1k", tmp_path / "data", source=archives)
    assert not list((tmp_path / "data").glob("*"))


def test_archives_of_another_dataset_change_nothing(
    tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue.datasets()["imagenet1k"], "train", 7)
    with pytest.raises(DataError, match="is not the dataset"):
        prepare("imagenet1k", tmp_path / "data", source=archives)
    assert not list((tmp_path / "data").glob("*"))


@pytest.mark.parametrize("content", [b"not an archive", b""])
def test_a_file_that_is_no_archive_is_an_error(
    tmp_path: Path, archives: Path, content: bytes
) -> None:
    (archives / "ILSVRC2012_img_train.tar").write_bytes(content)
    with pytest.raises(DataError):
        prepare("imagenet1k", tmp_path / "data", source=archives)


def test_a_member_that_points_out_of_its_archive_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch, "cub200")
    folder = tmp_path / "archives"
    folder.mkdir()
    tar(folder / "CUB_200_2011.tgz", {"../../../evil.txt": b"evil"})
    with pytest.raises(DataError, match="cannot be unpacked"):
        prepare("cub200", tmp_path / "data", source=folder)
    assert not list(tmp_path.rglob("evil.txt"))


def test_a_zip_and_lists_beside_it_become_a_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch, "clipart", classes=2, train=2, test=2)
    folder = tmp_path / "archives"
    folder.mkdir()
    names = ["clipart/axe/a.jpg", "clipart/bus/b.jpg"]
    with zipfile.ZipFile(folder / "clipart.zip", "w") as archive:
        for level, name in enumerate(names):
            archive.writestr(name, picture(40 * level))
    for split in ("train", "test"):
        lines = [f"{name} {label}\n" for label, name in enumerate(names)]
        (folder / f"clipart_{split}.txt").write_text("".join(lines))
    assert prepare("clipart", tmp_path / "data", source=folder).startswith("clipart: 2 train")


def test_a_dataset_without_archives_says_how_it_is_had(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"svhn comes in no archives. Run: vtjobs data prepare svhn"):
        prepare("svhn", tmp_path / "data", source=tmp_path)


def test_every_dataset_is_embedded_or_fetched_or_comes_in_archives() -> None:
    for name, facts in catalogue.datasets().items():
        fetched = facts.get("fetched_as", name) in FETCHED
        assert not facts.get("files") or fetched != (name in sources()), name

"""The larger datasets, read from small trees in the layouts that they are published in."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image
from scipy.io import savemat

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.states import FailureClass
from vtjobs.jobs.values import changed
from vtjobs.workers.data.datasets import DOMAINS, load, load_folder
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.listed import Listed
from vtjobs.workers.errors import DataError
from vtjobs.workers.ranks.failure import classify
from vtjobs.workers.tools.prepare import prepare

from ...support.training import image_folder, run_spec


def _picture(path: Path, level: int, *, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = level if mode == "L" else (level, 0, 0)
    Image.new(mode, (5, 4), colour).save(path)


def _load(name: str, split: str, root: Path, *, classes: int, **sizes: int) -> ImageSet:
    facts = changed(catalogue.dataset(name), classes=classes, **sizes)
    return load(facts, split, data_root=root, paths={})


def _levels(found: ImageSet) -> list[int]:
    return [found.pil(index).getpixel((0, 0))[0] for index in range(len(found))]


def test_imagenet_is_numbered_in_the_order_of_its_class_ids(tmp_path: Path) -> None:
    for level, name in enumerate(["n02", "n01", "n03"]):
        for number in range(2):
            _picture(tmp_path / "imagenet1k" / "train" / name / f"{name}_{number}.JPEG", 40 * level)
        _picture(tmp_path / "imagenet1k" / "val" / name / "a.JPEG", 40 * level, mode="L")
    train = _load("imagenet1k", "train", tmp_path, classes=3, train=6)
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert _levels(train) == pytest.approx([40, 40, 0, 0, 80, 80], abs=3)
    test = _load("imagenet1k", "test", tmp_path, classes=3, test=3)
    assert test.pil(0).mode == "RGB", "grey pictures have three channels as well"


def test_listing_a_tree_asks_for_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        _picture(tmp_path / "imagenet1k" / "train" / f"n{number % 2}" / f"{number}.JPEG", 0)
    asked: list[object] = []
    real = os.stat
    monkeypatch.setattr(
        os, "stat", lambda *words, **named: asked.append(words) or real(*words, **named)
    )
    assert len(_load("imagenet1k", "train", tmp_path, classes=2, train=30)) == 30
    assert not [words for words in asked if ".JPEG" in str(words)]


@pytest.mark.paper("DE-17")
def test_imagenet_v2_is_numbered_by_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue.datasets()["imagenet1k"]["sets"]["v2"], "count", 1000)
    place = tmp_path / "imagenet1k" / "imagenetv2-matched-frequency-format-val"
    for label in range(1000):
        _picture(place / str(label) / "a.jpeg", label % 250)
    found = _load("imagenet1k", "v2", tmp_path, classes=1000)
    assert found.labels.tolist() == list(range(1000))
    assert _levels(found.part(found.labels[7:9])) == pytest.approx([7, 8], abs=3)


def _few(monkeypatch: pytest.MonkeyPatch, **counts: int) -> None:
    """Have the catalogue expect so many images of sets of ImageNet."""
    for name, count in counts.items():
        monkeypatch.setitem(catalogue.datasets()["imagenet1k"]["sets"][name], "count", count)


def _imagenet_of_three(root: Path) -> Path:
    """Three classes; the val part has images 1 to 4, whose brightness is their number times 10."""
    place = root / "imagenet1k"
    for name in ("n01", "n02", "n03"):
        _picture(place / "train" / name / "a.JPEG", 0)
    for number, name in ((1, "n02"), (2, "n01"), (3, "n01"), (4, "n03")):
        _picture(place / "val" / name / f"ILSVRC2012_val_{number:08}.JPEG", number * 10)
    return place


@pytest.mark.paper("DE-17")
def test_reassessed_labels_go_with_the_number_in_an_images_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _few(monkeypatch, real=3)
    place = _imagenet_of_three(tmp_path)
    (place / "real.json").write_text(json.dumps([[2, 0], [], [1], [0, 1, 2]]))
    found = _load("imagenet1k", "real", tmp_path, classes=3)
    # In the order of folders: image 3 (image 2 has no label), 1, 4.
    assert _levels(found) == pytest.approx([30, 10, 40], abs=3)
    assert found.answers is not None
    assert [row.nonzero()[:, 0].tolist() for row in found.answers] == [[1], [0, 2], [0, 1, 2]]
    part = found.part(found.labels.new_tensor([2, 0]))
    assert part.answers is not None
    assert part.answers.sum(1).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "is not a list of lists of classes"),
        ("nonsense", "is not a list of lists of classes"),
        ("[[1000], [0], [0], [0]]", "has classes outside 0 … 999"),
        ("[[-1], [0], [0], [0]]", "has classes outside 0 … 999"),
        ("[[0], [1]]", "its name must end in its number, 1 … 2"),
    ],
)
def test_reassessed_labels_that_are_none_are_told(
    tmp_path: Path, content: str, message: str
) -> None:
    (_imagenet_of_three(tmp_path) / "real.json").write_text(content)
    with pytest.raises(DataError, match=message):
        _load("imagenet1k", "real", tmp_path, classes=3)


@pytest.mark.parametrize(
    ("name", "folder"), [("a", "imagenet-a"), ("r", "imagenet-r"), ("sketch", "sketch")]
)
def test_a_set_of_some_classes_lets_a_model_choose_among_these_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: str
) -> None:
    _few(monkeypatch, **{name: 3})
    place = _imagenet_of_three(tmp_path)
    for number, wnid in enumerate(["n03", "n01", "n01"]):
        _picture(place / folder / wnid / f"{number}.jpg", number * 40)
    found = _load("imagenet1k", name, tmp_path, classes=3)
    assert found.labels.tolist() == [0, 0, 2]
    assert found.only is not None
    assert found.only.nonzero()[:, 0].tolist() == [0, 2]
    _picture(place / folder / "n02" / "b.jpg", 9)
    _few(monkeypatch, **{name: 4})
    assert _load("imagenet1k", name, tmp_path, classes=3).only is None, "all classes are there"


def test_a_corruption_is_read_at_its_severity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _few(monkeypatch, c_defocus_blur_3=1)
    place = _imagenet_of_three(tmp_path)
    _picture(place / "imagenet-c" / "defocus_blur" / "3" / "n02" / "ILSVRC2012_val_1.JPEG", 50)
    found = _load("imagenet1k", "c_defocus_blur_3", tmp_path, classes=3)
    assert (found.labels.tolist(), _levels(found)) == ([1], pytest.approx([50], abs=3))


def test_a_folder_that_is_no_class_of_imagenet_is_told(tmp_path: Path) -> None:
    place = _imagenet_of_three(tmp_path)
    _picture(place / "imagenet-a" / "n09" / "a.jpg", 0)
    with pytest.raises(DataError, match="n09 is no class of ImageNet"):
        _load("imagenet1k", "a", tmp_path, classes=3)


def test_images_that_are_cropped_already_are_not_cropped_again() -> None:
    imagenet, recipe = catalogue.dataset("imagenet1k"), run_spec(eval_crop_pct=0.875).recipe
    crops = {
        name: catalogue.recipe_on(name, imagenet, recipe).eval_crop_pct
        for name in ("test", "c_fog_1", "a")
    }
    assert crops == {"test": 0.875, "c_fog_1": 1.0, "a": 0.875}


def test_a_set_that_is_missing_is_told_with_its_own_archive_alone(tmp_path: Path) -> None:
    for split in ("train", "val"):
        for label in range(1000):
            (tmp_path / "imagenet1k" / split / str(label)).mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        _load("imagenet1k", "a", tmp_path, classes=1000)
    said = str(caught.value)
    assert said.startswith(f"set a of dataset imagenet1k is not in {tmp_path}. Get imagenet-a.tar")
    assert "v2" not in said and "weather" not in said


def test_imagenets_further_sets_have_their_published_sizes() -> None:
    sets = catalogue.datasets()["imagenet1k"]["sets"]
    assert sum(name.startswith("c_") for name in sets) == 15 * 5
    plain = {name: sets[name]["count"] for name in sets if not name.startswith("c_")}
    assert plain == {"v2": 10_000, "real": 46_837, "a": 7_500, "r": 30_000, "sketch": 50_889}


@pytest.mark.paper("DR-34")
def test_imagenet_100_takes_the_listed_classes_alone(tmp_path: Path) -> None:
    listed = catalogue.class_list("imagenet100")
    for name in [*listed, "n00000000", "n99999999"]:
        _picture(tmp_path / "imagenet1k" / "val" / name / "a.JPEG", 10)
    test = _load("imagenet100", "test", tmp_path, classes=100, test=100)
    assert test.labels.tolist() == list(range(100)) and listed == sorted(set(listed))


@pytest.mark.paper("RV-25")
def test_tiny_imagenets_val_part_is_labelled_by_its_annotations(tmp_path: Path) -> None:
    place = tmp_path / "tiny_imagenet" / "tiny-imagenet-200"
    for level, name in enumerate(["n2", "n1"]):
        _picture(place / "train" / name / "images" / f"{name}_0.JPEG", 100 * level)
        _picture(place / "val" / "images" / f"val_{level}.JPEG", 100 * level)
    (place / "wnids.txt").write_text("n2\nn1\n")
    rows = ["val_1.JPEG\tn1\t0\t0\t62\t62", "val_0.JPEG\tn2\t1\t2\t3\t4"]
    (place / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")
    train = _load("tiny_imagenet", "train", tmp_path, classes=2, train=2)
    test = _load("tiny_imagenet", "test", tmp_path, classes=2, test=2)
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1], [0, 1])
    assert _levels(train) == _levels(test) == pytest.approx([100, 0], abs=3)


@pytest.mark.paper("DR-33")
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_is_read_by_its_lists(tmp_path: Path, domain: str) -> None:
    place = tmp_path / "domainnet"
    files = {"train": ["the_Eiffel_Tower/b.jpg", "aircraft carrier/c.jpg"], "test": ["zebra/d.jpg"]}
    for split, names in files.items():
        for name in names:
            _picture(place / domain / name, 7)
        lines = [f"{domain}/{name} {number}" for number, name in enumerate(names)]
        (place / f"{domain}_{split}.txt").write_text("\n".join(lines) + "\n")
    train = _load(domain, "train", tmp_path, classes=3, train=2)
    test = _load(domain, "test", tmp_path, classes=3, test=1)
    assert (train.labels.tolist(), test.labels.tolist()) == (
        [1, 0],
        [2],
    ), "a class of one part alone counts in both"


@pytest.mark.paper("GR-07")
def test_inaturalist_is_read_from_its_annotations(tmp_path: Path) -> None:
    place = tmp_path / "inat2019"
    for split, ids in (("train", [7, 3]), ("val", [5])):
        images: list[dict[str, Any]] = []
        for number in ids:
            name = f"train_val2019/Plants/{number}/p.jpg"
            _picture(place / name, number)
            images.append({"id": number, "file_name": name, "width": 5, "height": 4})
        notes = [
            {"id": number, "image_id": number, "category_id": number % 3}
            for number in reversed(ids)
        ]
        data = {
            "images": images,
            "annotations": notes,
            "categories": [
                {"id": number, "order": "Apiales" if number == 1 else "Poales"}
                for number in range(3)
            ],
        }
        (place / f"{split}2019.json").write_text(json.dumps(data))
    assert _load("inat2019", "train", tmp_path, classes=3, train=2).labels.tolist() == [1, 0]
    assert _load("inat2019", "test", tmp_path, classes=3, test=1).labels.tolist() == [2]
    coarse = {"classes": 2, "train": 2, "test": 1}
    assert _load("inat2019_order", "train", tmp_path, **coarse).labels.tolist() == [1, 0]
    assert _load("inat2019_order", "test", tmp_path, **coarse).labels.tolist() == [0]


def test_cars_are_read_from_the_devkit(tmp_path: Path) -> None:
    place = tmp_path / "cars" / "stanford_cars"
    for folder, note in (
        ("cars_train", place / "devkit" / "cars_train_annos.mat"),
        ("cars_test", place / "cars_test_annos_withlabels.mat"),
    ):
        for number in range(2):
            _picture(place / folder / f"{number}.jpg", 9)
        note.parent.mkdir(parents=True, exist_ok=True)
        rows = numpy.array([("0.jpg", 2), ("1.jpg", 1)], dtype=[("fname", object), ("class", int)])
        savemat(note, {"annotations": rows})
    savemat(place / "devkit" / "cars_meta.mat", {"class_names": ["one", "two"]})
    for split in ("train", "test"):
        found = _load("cars", split, tmp_path, classes=2, train=2, test=2)
        assert found.labels.tolist() == [1, 0]


@pytest.mark.paper("GR-14")
def test_food_is_read_from_its_lists(tmp_path: Path) -> None:
    place = tmp_path / "food101" / "food-101"
    lists = {"train": {"pie": ["pie/1"], "soup": ["soup/2"]}, "test": {"soup": ["soup/3"]}}
    for split, names in lists.items():
        (place / "meta").mkdir(parents=True, exist_ok=True)
        (place / "meta" / f"{split}.json").write_text(json.dumps(names))
        for name in [name for listed in names.values() for name in listed]:
            _picture(place / "images" / f"{name}.jpg", 9)
    assert _load("food101", "train", tmp_path, classes=2, train=2).labels.tolist() == [0, 1]
    # Its test part has no pie here: torchvision numbers the classes of each list by itself.
    assert _load("food101", "test", tmp_path, classes=2, test=1).labels.tolist() == [0]


def test_pets_are_read_by_breed(tmp_path: Path) -> None:
    place = tmp_path / "pets" / "oxford-iiit-pet"
    for split, lines in (
        ("trainval", ["Abyssinian_1 1 1 1", "beagle_2 2 2 1"]),
        ("test", ["beagle_3 2 2 1"]),
    ):
        (place / "annotations").mkdir(parents=True, exist_ok=True)
        (place / "annotations" / f"{split}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            _picture(place / "images" / f"{line.split()[0]}.jpg", 9)
    assert _load("pets", "train", tmp_path, classes=2, train=2).labels.tolist() == [0, 1]
    assert _load("pets", "test", tmp_path, classes=2, test=1).labels.tolist() == [1]


def test_aircraft_are_read_by_variant(tmp_path: Path) -> None:
    place = tmp_path / "aircraft" / "fgvc-aircraft-2013b" / "data"
    place.mkdir(parents=True)
    (place / "variants.txt").write_text("707-320\nA300B4\n")
    for split, lines in (("trainval", ["01 A300B4", "02 707-320"]), ("test", ["03 A300B4"])):
        (place / f"images_variant_{split}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            _picture(place / "images" / f"{line.split()[0]}.jpg", 9)
    assert _load("aircraft", "train", tmp_path, classes=2, train=2).labels.tolist() == [1, 0]
    assert _load("aircraft", "test", tmp_path, classes=2, test=1).labels.tolist() == [1]


def test_birds_are_read_from_their_lists(tmp_path: Path) -> None:
    place = tmp_path / "cub200" / "CUB_200_2011"
    names = ["001.Albatross/a 1.jpg", "002.Auklet/b.jpg", "001.Albatross/c.jpg"]
    for name in names:
        _picture(place / "images" / name, 9)
    for file, values in (
        ("images.txt", names), ("image_class_labels.txt", ["1", "2", "1"]), ("train_test_split.txt", ["1", "1", "0"]),
    ):  # fmt: skip
        lines = [f"{number} {value}" for number, value in enumerate(values, start=1)]
        (place / file).write_text("\n".join(lines) + "\n")
    found = _load("cub200", "train", tmp_path, classes=2, train=2)
    assert found.labels.tolist() == [0, 1] and found.pil(0).size
    assert _load("cub200", "test", tmp_path, classes=2, test=1).labels.tolist() == [0]


def test_what_is_not_there_is_told_with_the_layout_that_is_expected(tmp_path: Path) -> None:
    for name in ("imagenet1k", "tiny_imagenet", "clipart", "inat2018", "cars", "cub200"):
        with pytest.raises(DataError, match="expected ") as caught:
            prepare(name, tmp_path)
        assert catalogue.datasets()[name]["layout"] in str(caught.value)


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        _picture(tmp_path / "imagenet1k" / "train" / name / "a.JPEG", 1)
    with pytest.raises(DataError, match="labels outside its 1 classes"):
        _load("imagenet1k", "train", tmp_path, classes=1, train=2)


# DRLoc, table 1; RelViT, section 4.1; thesis, table 2.3 and 3.
SIZES = {
    "imagenet100": (126_689, 5_000, 100), "cifar10": (50_000, 10_000, 10), "cifar100": (50_000, 10_000, 100),
    "flowers102": (2_040, 6_149, 102), "svhn": (73_257, 26_032, 10), "clipart": (33_525, 14_604, 345),
    "infograph": (36_023, 15_582, 345), "painting": (50_416, 21_850, 345), "quickdraw": (120_750, 51_750, 345),
    "real": (120_906, 52_041, 345), "sketch": (48_212, 20_916, 345), "flowers102_relvit": (1_020, 1_020, 102),
    "tiny_imagenet": (100_000, 10_000, 200), "inat2018": (437_513, 24_426, 8_142), "cars": (8_144, 8_041, 196),
    "cifar100_coarse": (50_000, 10_000, 20), "inat2018_kingdom": (437_513, 24_426, 6),
    "inat2018_phylum": (437_513, 24_426, 25), "inat2018_class": (437_513, 24_426, 57),
    "inat2018_order": (437_513, 24_426, 272), "inat2018_family": (437_513, 24_426, 1_118),
    "inat2018_genus": (437_513, 24_426, 4_401),
    # The datasets' own papers.
    "food101": (75_750, 25_250, 101), "pets": (3_680, 3_669, 37), "aircraft": (6_667, 3_333, 100), "cub200": (5_994, 5_794, 200),
}  # fmt: skip


@pytest.mark.paper("DR-32", "DR-33", "DR-34", "DR-62", "RV-25", "GR-07")
@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_classes_are_those_of_the_papers_tables(name: str) -> None:
    facts = catalogue.datasets()[name]
    assert (facts["train"], facts["test"], facts["classes"]) == SIZES[name]


def test_every_dataset_of_the_catalogue_has_a_fingerprint_of_its_own() -> None:
    prints = [facts["fingerprint"] for facts in catalogue.datasets().values()]
    assert len(set(prints)) == len(prints)


def _truncated(path: Path) -> None:
    Image.effect_noise((64, 64), 50).convert("RGB").save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:700])


def _bomb(path: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(path, "PNG")


def _broken_png(path: Path) -> None:
    Image.new("RGB", (64, 64)).save(path, "PNG")
    data = bytearray(path.read_bytes())
    data[30:34] = b"\xff\xff\xff\xff"
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


BROKEN: dict[str, Callable[[Path], None]] = {
    "truncated JPEG": _truncated, "decompression bomb": _bomb, "broken PNG": _broken_png, "empty": _empty,
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_an_image_that_cannot_be_read_is_named_and_of_class_data(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a picture.jpg"
    BROKEN[kind](path)
    with pytest.raises(DataError) as caught:
        Listed([(path, 0)])[0]
    assert str(path) in str(caught.value)
    assert classify(caught.value) is FailureClass.DATA


def test_an_image_folder_is_read_by_its_paths(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "images", train=3, test=2)
    _truncated(next((root / "train").rglob("*.*")))
    images = load_folder(root, "train")
    with pytest.raises(DataError, match=r"train/.* cannot be read"):
        [images.pil(index) for index in range(len(images))]


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_an_image_with_more_than_8_bits_per_pixel_is_an_error(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "deep.tiff"
    Image.new(mode, (4, 4), 1000).save(path)
    with pytest.raises(DataError, match=r"deep\.tiff has more than 8 bits per pixel\. Save it"):
        Listed([(path, 0)])[0]

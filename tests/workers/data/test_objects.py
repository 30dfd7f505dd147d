"""Images with objects: read as COCO has them, and augmented together."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as packing

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.coco_file import Annotation, segmentation_of
from vtjobs.jobs.values import changed
from vtjobs.workers.data.datasets import load_objects
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.object_pipeline import ObjectSamples, ObjectSource, canvas, fitted_size
from vtjobs.workers.data.objects import Annotated, Objects, OfImage, coco2017, no_objects
from vtjobs.workers.errors import DataError, DataMissing
from vtjobs.workers.randomness import Streams

from ...support.object_images import object_folder
from ...support.training import CPU, WITH_OBJECTS, run_spec

DATASET = changed(catalogue.dataset("coco2017"), classes=2, train=4, test=2)


def _annotated(tmp_path: Path, *objects: dict[str, Any], size: tuple[int, int] = (6, 8)) -> Any:
    """Read one image with such objects."""
    height, width = size
    file = tmp_path / "objects.json"
    described = {
        "images": [{"id": 7, "file_name": "7.png", "width": width, "height": height}],
        "annotations": [{"image_id": 7, "category_id": 5, **one} for one in objects],
        "categories": [{"id": 9, "name": "nine"}, {"id": 5, "name": "five"}],
    }
    file.write_text(json.dumps(described))
    return Annotated(file, tmp_path, trains=False, classes=2)


SQUARE = {"bbox": [2, 1, 3, 4], "segmentation": [[2, 1, 5, 1, 5, 5, 2, 5]], "area": 12}


# Reading -------------------------------------------------------------------------------------------


def test_an_object_has_its_box_by_corners_its_class_by_rank_and_its_mask(tmp_path: Path) -> None:
    other = {**SQUARE, "category_id": 9}
    boxes, classes, masks = _annotated(tmp_path, SQUARE, other).objects(0, (6, 8))
    assert boxes.tolist() == [[2, 1, 5, 5]] * 2
    assert classes.tolist() == [0, 1], "by the order of the numbers 5 and 9"
    expected = torch.zeros(6, 8, dtype=torch.bool)
    expected[1:5, 2:5] = True
    assert torch.equal(masks[0], expected)


def test_masks_are_read_from_polygons_and_from_both_run_length_codes(tmp_path: Path) -> None:
    inside = numpy.zeros((6, 8), dtype=numpy.uint8, order="F")
    inside[1:5, 2:5] = 1
    packed = packing.encode(inside)
    text = {"size": [6, 8], "counts": packed["counts"].decode()}
    plain = {"size": [6, 8], "counts": [13, 4, 2, 4, 2, 4, 19]}
    found = _annotated(
        tmp_path, SQUARE, {**SQUARE, "segmentation": text}, {**SQUARE, "segmentation": plain}
    )
    masks = found.objects(0, (6, 8)).masks
    assert torch.equal(masks[0], masks[1]) and torch.equal(masks[0], masks[2])


def test_several_polygons_are_one_mask(tmp_path: Path) -> None:
    two = {**SQUARE, "segmentation": [[0, 0, 2, 0, 2, 2, 0, 2], [4, 4, 6, 4, 6, 6, 4, 6]]}
    (mask,) = _annotated(tmp_path, two).objects(0, (6, 8)).masks
    assert mask[0, 0] and mask[5, 5] and not mask[3, 3]


@pytest.mark.parametrize(
    "more",
    [{"iscrowd": 1}, {"bbox": [2, 1, 0.5, 4]}, {"area": 0}],
    ids=["a crowd", "no pixel wide", "empty"],
)
def test_what_is_not_trained_on_is_still_part_of_the_truth(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    found = _annotated(tmp_path, {**SQUARE, **more})
    assert len(found.objects(0, (6, 8)).classes) == 0
    assert found.objects(0, (12, 16)).masks.shape == (0, 12, 16)
    (truth,) = found.truth(0)
    assert truth["category_id"] == 0 and truth["iscrowd"] == more.get("iscrowd", 0)


def test_a_box_beyond_the_image_ends_with_it(tmp_path: Path) -> None:
    found = _annotated(tmp_path, {**SQUARE, "bbox": [-2, 3, 20, 20]})
    assert found.objects(0, (6, 8)).boxes.tolist() == [[0, 3, 8, 6]]


@pytest.mark.parametrize("box", [[8, 1, 4, 4], [50, 1, 9, 9], [-4, 1, 4.5, 4]])
def test_an_object_of_which_no_pixel_is_left_in_the_image_is_not_trained_on(
    tmp_path: Path, box: list[float]
) -> None:
    found = _annotated(tmp_path, {**SQUARE, "bbox": box}, SQUARE)
    assert found.objects(0, (6, 8)).boxes.tolist() == [[2, 1, 5, 5]]


def test_at_another_size_boxes_and_masks_of_every_kind_are_where_the_object_is(
    tmp_path: Path,
) -> None:
    code = {"size": [6, 8], "counts": [13, 4, 2, 4, 2, 4, 19]}
    found = _annotated(tmp_path, SQUARE, {**SQUARE, "segmentation": code}).objects(0, (12, 24))
    assert found.boxes.tolist() == [[6, 2, 15, 10]] * 2
    expected = torch.zeros(12, 24, dtype=torch.bool)
    expected[2:10, 6:15] = True
    assert torch.equal(found.masks[0], expected) and torch.equal(found.masks[1], expected)


def test_of_an_object_without_an_area_its_mask_has_one(tmp_path: Path) -> None:
    half = {"bbox": [0, 0, 4, 4], "segmentation": [[0, 0, 4, 0, 0, 4]]}
    (truth,) = _annotated(tmp_path, half).truth(0)
    assert 6 <= truth["area"] <= 10


@pytest.mark.parametrize(
    ("segmentation", "says"),
    [
        ({"size": [6, 8]}, "its counts are no lengths of runs"),
        ({"size": [6, 8], "counts": [-3, 51]}, "its counts are no lengths of runs"),
        ({"size": [6, 8], "counts": [9]}, "its runs are of 9 pixels, the image has 48"),
        ({"size": [6, 8], "counts": "0"}, "its runs are of 0 pixels"),
        ({"size": [6, 8], "counts": "~~~~~~~~~ooooo"}, "its counts are no lengths of runs"),
        ({"size": [6, 8], "counts": "o" * 10**6}, "its counts are no lengths of runs"),
        ({"size": [3, 3], "counts": [9]}, r"its size is \[3, 3\], the image's \[6, 8\]"),
        ({"size": [10**6, 10**6], "counts": [10**12]}, "its size is"),
        ("a mask", "expected polygons or a run-length code"),
        ([[1.0, 2.0]], "a polygon of 2 numbers"),
        ([[1, 1, 9, 1, "x", 9]], "expected polygons"),
        ([[1e300, 0, 5, 5, 7, -1e300]], "a corner lies far beyond the image of 8x6 pixels"),
        ([[]], "a polygon of 0 numbers"),
    ],
)
def test_a_mask_that_cannot_be_used_names_its_file(
    tmp_path: Path, segmentation: Any, says: str
) -> None:
    found = _annotated(tmp_path, {**SQUARE, "segmentation": segmentation})
    for read in (lambda: found.objects(0, (6, 8)), lambda: found.truth(0)):
        with pytest.raises(DataError, match=says) as error:
            read()
        assert "objects.json: segmentation of an object of image 7" in str(error.value)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.booleans(), min_size=48, max_size=48))
def test_every_code_that_cocos_program_packs_is_taken_for_one(pixels: list[bool]) -> None:
    mask = numpy.asfortranarray(numpy.array(pixels, dtype=numpy.uint8).reshape(6, 8))
    text = packing.encode(mask)["counts"].decode()
    code = {"size": [6, 8], "counts": text}
    one = Annotation(
        image_id=1, category_id=1, bbox=(0, 0, 1, 1), segmentation=msgspec.Raw(json.dumps(code))
    )
    assert segmentation_of(one, (6, 8)) == code


def test_coco_is_read_as_it_is_published(tmp_path: Path) -> None:
    root = tmp_path / "coco2017"
    (root / "annotations").mkdir(parents=True)
    described = {
        "info": {"year": 2017},
        "licenses": [],
        "images": [
            {"id": number, "file_name": f"{number}.jpg", "width": 8, "height": 6, "flickr_url": ""}
            for number in (1, 2)
        ],
        "annotations": [{"id": 3, "image_id": 2, "category_id": 90, "iscrowd": 0, **SQUARE}],
        "categories": [
            {"id": 11 + number, "name": str(number), "supercategory": "x"} for number in range(80)
        ],
    }
    for part in ("train2017", "val2017"):
        (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(described))
    train, test = (coco2017(tmp_path, split) for split in ("train", "test"))
    assert train.pictures.paths == [root / "train2017" / "2.jpg"], "the other one has no object"
    assert len(test.pictures.paths) == 2
    assert train.objects(0, (6, 8)).classes.tolist() == [79]


def test_another_number_of_categories_is_an_error(tmp_path: Path) -> None:
    root = object_folder(tmp_path / "parts", train=1, test=1)
    with pytest.raises(DataError, match="2 categories, expected 5"):
        load_objects(root, "train", classes=5)


def test_a_part_without_annotations_is_missing(tmp_path: Path) -> None:
    root = object_folder(tmp_path / "parts", train=1, test=1)
    with pytest.raises(DataMissing, match=r"no annotations/v2\.json"):
        load_objects(root, "v2", classes=2)


# Augmentation --------------------------------------------------------------------------------------


def _recipe(**more: Any) -> Any:
    return changed(run_spec(**WITH_OBJECTS).recipe, **more)


@pytest.mark.parametrize(
    ("size", "longest", "factor", "expected"),
    [
        ((400, 600), 1333, 1.0, (800, 1200)),
        # The longer side would have 1600 pixels.
        ((400, 800), 1333, 1.0, (666, 1333)),
        ((400, 600), 1333, 0.6, (480, 720)),
        ((400, 600), None, 1.0, (533, 800)),
        ((600, 300), None, 0.5, (400, 200)),
    ],
)
def test_an_image_is_brought_to_a_size_with_its_ratio_kept(
    size: tuple[int, int], longest: int | None, factor: float, expected: tuple[int, int]
) -> None:
    recipe = _recipe(image_size=800, longest_side=longest)
    assert fitted_size(size, recipe, factor) == expected


def test_images_are_filled_up_to_the_largest_of_their_share_or_to_a_square() -> None:
    sizes = [(33, 60), (20, 70)]
    assert canvas(sizes, _recipe(image_size=64, longest_side=80)) == (64, 96)
    assert canvas(sizes, _recipe(image_size=80)) == (80, 80)


class Half:
    """One image, 8 x 16, with an object on its left upper corner."""

    def size(self, _: int) -> tuple[int, int]:
        return 8, 16

    def objects(self, _: int, shown: tuple[int, int]) -> OfImage:
        masks = torch.zeros(1, *shown, dtype=torch.bool)
        side = shown[0] // 2
        masks[0, :side, :side] = True
        box = torch.tensor([[0.0, 0.0, side, side]])
        return OfImage(box, torch.tensor([1]), masks)

    def truth(self, _: int) -> list[dict[str, Any]]:
        return []


def _half(**more: Any) -> ObjectSamples:
    image = Image.fromarray(numpy.full((8, 16, 3), 200, dtype=numpy.uint8))
    for x in range(4):
        for y in range(4):
            image.putpixel((x, y), (0, 0, 0))
    images = ImageSet(labels=torch.zeros(1), reader=lambda _: image, annotated=Half())
    recipe = _recipe(image_size=32, rescale=None, **more)
    seeds = {name: 0 for name in run_spec().seeds}
    return ObjectSamples(images, DATASET, recipe, Streams(seeds))


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_box_and_mask_stay_where_the_object_is(flip: float) -> None:
    samples = _half(flip=flip)
    images, objects = samples.collate([samples.sample(0, 0, range(1))])
    assert images.shape == (1, 1, 3, 32, 32)
    ((boxes, classes, masks),) = objects.by_image()
    left = 0 if not flip else 24
    assert boxes.tolist() == [[left, 0, left + 8, 8]] and classes.tolist() == [1]
    inside = masks[0]
    assert inside.sum() == 64 and inside[:8, left : left + 8].all()
    shown = images[0, 0]
    assert shown[:, :16][:, inside[:16]].float().mean() < 40 < 150 < shown[:, 15, 16].min()
    fill = torch.tensor([round(255 * value) for value in DATASET.mean])
    assert torch.equal(shown[:, 20, 5], fill.byte()), "below the image lies the mean colour"
    assert objects.sizes == ((16, 32),)


def test_what_is_drawn_follows_from_epoch_and_image_alone() -> None:
    samples = _half(flip=0.5)
    samples._recipe = changed(samples._recipe, rescale=(0.5, 1.0))
    shapes = [samples.sample(epoch, 0, range(1))[0].shape for epoch in range(6)]
    again = [samples.sample(epoch, 0, range(1))[0].shape for epoch in range(6)]
    assert shapes == again and len(set(shapes)) > 1


def test_an_image_without_objects_is_shown_like_the_others(tmp_path: Path) -> None:
    root = object_folder(tmp_path / "parts", train=1, test=1)
    file = root / "annotations" / "test.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"annotations": []}))
    images = load_objects(root, "test", classes=2)
    samples = ObjectSamples(images, DATASET, _recipe(flip=1.0), Streams(run_spec().seeds))
    shown, objects = samples.collate([samples.sample(0, 0, range(1))])
    assert shown.shape == (1, 1, 3, 32, 32)
    assert objects.counts == (0,) and objects.masks.shape == (0, 32, 32)


def test_an_image_of_another_size_than_its_annotations_say_is_an_error(tmp_path: Path) -> None:
    root = object_folder(tmp_path / "parts", train=2, test=1)
    Image.new("RGB", (5, 9)).save(root / "images" / "train" / "1.png")
    images = load_objects(root, "train", classes=2)
    samples = ObjectSamples(images, DATASET, _recipe(), Streams(run_spec().seeds))
    with pytest.raises(DataError, match=r"1\.png has 5x9 pixels, by its annotations 49x41$"):
        samples.sample(0, 1, range(1))
    Image.new("RGB", (41, 49)).save(root / "images" / "train" / "1.png")
    with pytest.raises(DataError, match="Its EXIF data may turn it: save it upright"):
        samples.sample(0, 1, range(1))


# A batch's objects ---------------------------------------------------------------------------------


def _objects() -> Objects:
    counts = (2, 0, 1)
    return Objects(
        boxes=torch.arange(12.0).view(3, 4),
        classes=torch.tensor([1, 0, 1]),
        masks=torch.rand(3, 4, 4) > 0.5,
        counts=counts,
        sizes=((4, 3), (2, 2), (4, 4)),
    )


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_objects_are_cut_as_their_images_are(parts: int) -> None:
    whole = _objects()
    found = whole.chunk(parts)
    assert [len(part) for part in found] == [len(p) for p in torch.zeros(3).chunk(parts)]
    for name in ("boxes", "classes", "masks"):
        together = torch.cat([getattr(part, name) for part in found])
        assert torch.equal(together, getattr(whole, name))
    assert [size for part in found for size in part.sizes] == list(whole.sizes)
    each = [one.classes.tolist() for part in found for one in part.by_image()]
    assert each == [[1, 0], [], [1]]


def test_images_without_objects_have_empty_ones() -> None:
    found = no_objects(2, (4, 6), CPU)
    assert len(found) == 2
    assert [tuple(one.masks.shape) for one in found.by_image()] == [(0, 4, 6)] * 2


# For scoring ---------------------------------------------------------------------------------------


def test_ranks_look_at_each_image_once_whole_and_as_often(tmp_path: Path) -> None:
    root = object_folder(tmp_path / "parts", train=1, test=5)
    images = load_objects(root, "test", classes=2)
    seen = []
    for rank in range(2):
        source = ObjectSource(images, DATASET, _recipe(), CPU, rank=rank, world_size=2, threads=2)
        looks = list(source.looks())
        assert len(looks) == 3
        seen += [look for look in looks if look is not None]
    assert sorted(look.place for look in seen) == list(range(5))
    for look in seen:
        assert look.image.shape == (1, 3, 32, 32)
        assert look.stored == images.objects().size(look.place)
        assert max(look.shown) == 32
        below = look.image[0, :, look.shown[0] :]
        assert (below == 0).all(), "what was filled up is the mean colour"


def test_the_truth_has_every_image_and_numbers_from_1_on(tmp_path: Path) -> None:
    root = object_folder(tmp_path / "parts", train=1, test=3)
    source = ObjectSource(load_objects(root, "test", classes=2), DATASET, _recipe(), CPU)
    truth = source.truth()
    assert [one["id"] for one in truth["images"]] == [0, 1, 2]
    assert [one["id"] for one in truth["annotations"]] == [1, 2, 3, 4, 5, 6]
    assert {one["category_id"] for one in truth["annotations"]} == {0, 1}

"""A lab's own dataset, read by the class that came with the run."""

import io
import tarfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from vtjobs.jobs.run.settings import DatasetSettings
from vtjobs.workers.data.datasets import load
from vtjobs.workers.data.decoded import Decoder, Fit
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.errors import DataError
from vtjobs.workers.own_parts import OwnPartError

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SPOTS = (EXAMPLES / "spots.py").read_text()
ARRAYS = """
import numpy, torch

class Data:
    def __init__(self, root, split, shape=(4, 4), kind="array", wrong=False):
        self.targets = [0, 1, 1]
        self.shape, self.kind, self.wrong = tuple(shape), kind, wrong

    def __len__(self):
        return 3

    def __getitem__(self, index):
        shape = (5, 5) if self.wrong and index == 2 else self.shape
        values = numpy.full(shape, index, dtype=numpy.uint8)
        return torch.from_numpy(values) if self.kind == "tensor" else values
"""


def _dataset(source: str, *, channels: int = 3, train: int = 3, **args: object) -> DatasetSettings:
    return DatasetSettings(
        channels=channels,
        classes=4,
        fingerprint="none",
        mean=[0.5] * channels,
        std=[0.5] * channels,
        name="Spots" if source is SPOTS else "Data",
        test=100,
        train=train,
        args=args,
        source=source,
    )


def _load(dataset: DatasetSettings, split: str = "train") -> ImageSet:
    return load(dataset, split, data_root=Path("data"), paths={})


def test_pictures_are_opened_one_by_one(tmp_path: Path) -> None:
    read = _load(_dataset(SPOTS, train=200, side=10))
    assert read.images is None and read.labels.tolist()[:5] == [0, 1, 2, 3, 0]
    assert (read.pil(3).size, read.pil(3).mode) == ((10, 10), "RGB")


@pytest.mark.parametrize(
    ("channels", "kind", "shape"),
    [
        (1, "array", (4, 5)),
        (3, "array", (4, 5, 3)),
        (6, "array", (4, 5, 6)),
        (6, "tensor", (6, 4, 5)),
        (1, "tensor", (4, 5)),
    ],
)
def test_arrays_of_any_number_of_channels_become_one_tensor(
    channels: int, kind: str, shape: tuple[int, ...]
) -> None:
    read = _load(_dataset(ARRAYS, channels=channels, kind=kind, shape=shape))
    assert read.images is not None and read.images.shape == (3, channels, 4, 5)
    assert read.images.dtype == torch.uint8
    assert read.images.amax((1, 2, 3)).tolist() == [0, 1, 2]


def test_files_lie_where_the_grid_says_or_in_the_data_folder() -> None:
    source = ARRAYS.replace("self.targets = [0, 1, 1]", "raise KeyError(root)")
    with pytest.raises(KeyError, match="data"):
        _load(_dataset(source))
    with pytest.raises(KeyError, match="elsewhere"):
        load(
            _dataset(source), "train", data_root=Path("data"), paths={"none": "/elsewhere/pictures"}
        )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("self.targets = [0, 1, 1]", "pass", "no attribute targets"),
        ("self.targets = [0, 1, 1]", "self.targets = [0, 1]", "must be 3 whole numbers"),
        ("self.targets = [0, 1, 1]", "self.targets = [0., 1., 1.]", "must be 3 whole numbers"),
        ("def __len__", "def length", "the class has no __len__"),
    ],
)
def test_what_is_no_dataset_is_told(old: str, new: str, says: str) -> None:
    with pytest.raises(OwnPartError, match=says):
        _load(_dataset(ARRAYS.replace(old, new), channels=1))


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (_dataset(ARRAYS, channels=1, wrong=True), r"item 2 has shape \(1, 5, 5\)"),
        (_dataset(ARRAYS, channels=3), "expected uint8 with 3 channels"),
        (_dataset(ARRAYS, channels=1, train=7), "3 train images, expected 7"),
        (_dataset(ARRAYS.replace("1, 1]", "1, 9]"), channels=1), "outside its 4 classes"),
        (_dataset(SPOTS.replace("Image.fromarray(pixels)", '"text"'), train=200), "is a str"),
    ],
)
def test_items_that_cannot_be_trained_on_are_told(dataset: DatasetSettings, says: str) -> None:
    if "text" in str(dataset.source):
        dataset = _dataset(str(dataset.source).replace("class Spots", "class Data"), train=200)
    with pytest.raises(DataError, match=says):
        _load(dataset).pil(0)


def test_the_example_reads_the_pictures_of_all_shards_of_a_split(tmp_path: Path) -> None:
    colours = [(40 * number, 0, 0) for number in range(5)]
    for shard, numbers in (("train-000", (0, 1)), ("train-001", (2, 3)), ("test-000", (4,))):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as files:
            for number in numbers:
                picture = io.BytesIO()
                Image.new("RGB", (3, 2), colours[number]).save(picture, "PNG")
                for ending, content in (
                    ("png", picture.getvalue()),
                    ("cls", str(number % 3).encode()),
                ):
                    facts = tarfile.TarInfo(f"{number:04d}.{ending}")
                    facts.size = len(content)
                    files.addfile(facts, io.BytesIO(content))
    source = (EXAMPLES / "shards.py").read_text().replace("class Shards", "class Data")
    dataset = _dataset(source, train=4)
    read = load(dataset, "train", data_root=tmp_path, paths={})
    assert read.labels.tolist() == [0, 1, 2, 0]
    assert [read.pil(index).getpixel((0, 0)) for index in range(4)] == colours[:4]


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_pictures_have_the_channels_that_the_grid_says(channels: int, mode: str) -> None:
    read = _load(_dataset(SPOTS, train=200, channels=channels))
    assert read.pil(0).mode == mode
    shown = Decoder().decode(read, Fit(size=8, kernel="bilinear")).rows(0, 2)
    assert shown.shape == (2, channels, 8, 8)


def test_pictures_of_other_channels_must_be_arrays() -> None:
    with pytest.raises(DataError, match="Return arrays"):
        _load(_dataset(SPOTS, train=200, channels=4)).pil(0)

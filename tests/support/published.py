"""Small stand-ins for published datasets, in their real formats on disk."""

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy


class Patch(Protocol):
    """What sets the checksums of the published files to those of the written ones."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute of one of torchvision's datasets."""


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


class _Python2Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    """Write strings of bytes as Python 2 did, which wrote the published files."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_bytes(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + len(value).to_bytes(4, "little") + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


def python2_pickle(value: Any) -> bytes:
    stream = io.BytesIO()
    _Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def write_cifar(
    root: Path, kind: Any, *, each: int, patch: Patch
) -> tuple[numpy.ndarray, list[int]]:
    """Write every batch file with `each` images.

    Return all training images [N, 3, 32, 32] and labels.
    """
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    draw = numpy.random.default_rng(0)
    key = b"labels" if len(kind.train_list) > 1 else b"fine_labels"
    images, labels = [], []
    for part in ("train_list", "test_list"):
        listed = []
        for name, _ in getattr(kind, part):
            data = draw.integers(0, 256, (each, 3072), dtype=numpy.uint8)
            truth = draw.integers(0, 10 if key == b"labels" else 100, each).tolist()
            batch = {
                b"data": data,
                key: truth,
                b"batch_label": b"a batch",
                b"filenames": [b"x.png"] * each,
            }
            if key == b"fine_labels":
                batch[b"coarse_labels"] = [label // 5 for label in truth]
            (folder / name).write_bytes(python2_pickle(batch))
            listed.append([name, md5(folder / name)])
            if part == "train_list":
                images.append(data)
                labels += truth
        patch.setattr(kind, part, listed)
    return numpy.concatenate(images).reshape(-1, 3, 32, 32), labels


def write_svhn(root: Path, kind: Any, *, each: int, patch: Patch) -> dict[str, Any]:
    """Write train and test as MATLAB files, where the digit 0 is class 10.

    Return images and labels by split.
    """
    from scipy.io import savemat

    root.mkdir(parents=True)
    draw = numpy.random.default_rng(0)
    found: dict[str, Any] = {}
    listed = dict(kind.split_list)
    for split in ("train", "test"):
        images = draw.integers(0, 256, (32, 32, 3, each), dtype=numpy.uint8)
        digits = draw.integers(0, 10, each)
        digits[0] = 0
        url, name, _ = listed[split]
        savemat(
            root / name,
            {"X": images, "y": numpy.where(digits == 0, 10, digits).astype(numpy.uint8)[:, None]},
        )
        listed[split] = [url, name, md5(root / name)]
        found[split] = images.transpose(3, 2, 0, 1), digits
    patch.setattr(kind, "split_list", listed)
    return found


def write_flowers(root: Path, kind: Any, *, each: int = 3, patch: Patch) -> dict[str, list[int]]:
    """Write JPEG files of several sizes, `each` of them in each official part.

    Return the labels by part.
    """
    from PIL import Image
    from scipy.io import savemat

    folder = root / "flowers-102"
    (folder / "jpg").mkdir(parents=True)
    draw = numpy.random.default_rng(0)
    for number in range(1, 3 * each + 1):
        pixels = draw.integers(0, 256, (20 + number, 30, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(folder / "jpg" / f"image_{number:05d}.jpg")
    labels = numpy.arange(1, 3 * each + 1)
    savemat(folder / "imagelabels.mat", {"labels": labels[None]})
    ids = {
        "trnid": labels[None, 1 : 2 * each : 2],
        "valid": labels[None, 0 : 2 * each : 2],
        "tstid": labels[None, 2 * each :],
    }
    savemat(folder / "setid.mat", ids)
    facts = {
        name: (file, md5(folder / file) if name != "image" else "")
        for name, (file, _) in kind._file_dict.items()
    }
    patch.setattr(kind, "_file_dict", facts)
    parts = {"train": (*ids["trnid"][0], *ids["valid"][0]), "test": ids["tstid"][0]}
    return {part: [int(number) - 1 for number in numbers] for part, numbers in parts.items()}

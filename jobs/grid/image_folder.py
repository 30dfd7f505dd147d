"""The fingerprint of an image folder.

A manifest of its files, hashed, and cached by size and time.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..atomic_files import make_private_folder, read_cache, to_json, write_over
from ..errors import BadInput
from ..run.spec import digest

IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
)
TEST_FOLDERS = ("test", "val")
# Of a folder of images with masks.
PICTURES, MASKS, MASK_SUFFIX, CLASS_NAMES = "images", "masks", ".png", "classes.txt"
# A mask's level 255 is no class.
MOST_CLASSES = 255


def is_image(path: Path) -> bool:
    """Whether a file is one of a folder's images, by its name."""
    return path.suffix.lower() in IMAGE_SUFFIXES


def cache_folder() -> Path:
    """Return the folder for what can be computed again."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return make_private_folder(Path(base) / "vtjobs")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def describe_folder(path: Path, *, progress: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Return fingerprint, classes and sizes of `<path>/train/<class>/*` and
    `<path>/test|val/<class>/*`.

    Raises:
        BadInput: the folder does not exist, or has not this form.
    """
    if not path.is_dir():
        raise BadInput(f"dataset {path}: folder does not exist")
    test = next((name for name in TEST_FOLDERS if (path / name).is_dir()), None)
    if test is None or not (path / "train").is_dir():
        raise BadInput(
            f"dataset {path}: expected the folders train/<class>/ and test/<class>/ (or val/)"
        )
    parts = {name: _files(path / name) for name in ("train", test)}
    classes = {
        name: sorted({file.split("/")[0] for file in files}) for name, files in parts.items()
    }
    for name, files in parts.items():
        if not files:
            raise BadInput(f"dataset {path}: no images in {name}/<class>/")
    if classes["train"] != classes[test]:
        odd = sorted(set(classes["train"]) ^ set(classes[test]))
        raise BadInput(
            f"dataset {path}: train and {test} have different classes ({', '.join(odd[:5])})"
        )
    every = [f"{name}/{file}" for name, files in parts.items() for file in files]
    return {
        "fingerprint": manifest_of(path, every, progress),
        "classes": len(classes["train"]),
        "train": len(parts["train"]),
        "test": len(parts[test]),
        "test_folder": test,
    }


def describe_masks(path: Path) -> dict[str, Any]:
    """Return fingerprint, classes and sizes of `<path>/images/train|test|val/*` with a mask for
    each, `<path>/masks/train|test|val/*.png`.

    `<path>/classes.txt` has the name of a class in each line.

    Raises:
        BadInput: the folder does not exist, or has not this form.
    """
    if not path.is_dir():
        raise BadInput(f"dataset {path}: folder does not exist")
    test = next((name for name in TEST_FOLDERS if (path / PICTURES / name).is_dir()), None)
    if test is None or not (path / PICTURES / "train").is_dir():
        raise BadInput(
            f"dataset {path}: expected the folders images/train/ and images/test/ (or val/), and"
            " masks/ with as many"
        )
    parts = {name: _images_with_masks(path, name) for name in ("train", test)}
    names = path / CLASS_NAMES
    try:
        classes = [line for line in names.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"dataset {names}: expected a file with a class name in each line") from None
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise BadInput(f"dataset {names}: {len(classes)} classes, expected 2 to {MOST_CLASSES}")
    files = [
        file
        for part, stems in parts.items()
        for stem, picture in stems.items()
        for file in (f"{PICTURES}/{part}/{picture}", f"{MASKS}/{part}/{stem}{MASK_SUFFIX}")
    ]
    return {
        "fingerprint": manifest_of(path, [CLASS_NAMES, *files]),
        "classes": len(classes),
        "train": len(parts["train"]),
        "test": len(parts[test]),
    }


def _images_with_masks(path: Path, part: str) -> dict[str, str]:
    """Return the name without its ending -> the name, of each image of a part.

    Raises:
        BadInput: there is none, one has no mask, or two would have the same one.
    """
    folder = path / PICTURES / part
    found: dict[str, str] = {}
    for one in sorted(filter(is_image, folder.iterdir())):
        if one.stem in found:
            other = found[one.stem]
            raise BadInput(f"dataset {folder / one.name}: it would share a mask with {other}")
        found[one.stem] = one.name
    if not found:
        raise BadInput(f"dataset {path}: no images in {PICTURES}/{part}/")
    for stem, name in found.items():
        mask = path / MASKS / part / f"{stem}{MASK_SUFFIX}"
        if not mask.is_file():
            raise BadInput(f"dataset {folder / name}: no mask {mask}")
    return found


def describe_files(path: Path) -> str:
    """Return the fingerprint of a file, or of all files of a folder.

    Raises:
        BadInput: there is none, one cannot be read, or a folder is empty.
    """
    if not path.exists():
        raise BadInput(f"dataset {path}: no such file or folder")
    if path.is_file():
        return f"sha256:{file_sha256(path)}"
    files = sorted(
        os.path.relpath(os.path.join(folder, name), path)
        for folder, _, names in os.walk(path, followlinks=True)
        for name in names
    )
    if not files:
        raise BadInput(f"dataset {path}: the folder is empty")
    return manifest_of(path, files)


def manifest_of(root: Path, files: list[str], progress: Callable[[int], None] | None = None) -> str:
    """Return the fingerprint of a folder's files: a hash of their names and contents.

    Raises:
        BadInput: one cannot be read.
    """
    hashes = _hashes(root, files, progress)
    manifest = "\n".join(f"{file} {sha}" for file, sha in sorted(hashes.items()))
    return f"manifest:{digest(manifest, 40)}"


def _files(folder: Path) -> list[str]:
    found: list[str] = []
    for directory, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        inside = os.path.relpath(directory, folder)
        if inside != ".":
            found += [f"{inside}/{name}" for name in names if is_image(Path(name))]
    return sorted(found)


def _hashes(root: Path, files: list[str], progress: Callable[[int], None] | None) -> dict[str, str]:
    cache = cache_folder() / f"manifest-{digest(str(root.resolve()))}.json"
    known: dict[str, list[Any]] = read_cache(cache)
    fresh: dict[str, list[Any]] = {}
    for index, file in enumerate(files):
        try:
            facts = (root / file).stat()
            stamp = [facts.st_size, facts.st_mtime_ns]
            old = known.get(file)
            fresh[file] = [*stamp, old[2] if old and old[:2] == stamp else file_sha256(root / file)]
        except OSError as error:
            raise BadInput(
                f"dataset {root / file}: {(error.strerror or str(error)).lower()}"
            ) from None
        if progress and index % 1000 == 0:
            progress(index)
    if fresh != known:
        write_over(cache, to_json(fresh))
    return {file: entry[2] for file, entry in fresh.items()}

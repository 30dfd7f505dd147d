"""Where a dataset's images lie in a few large files: `data prepare --pack` makes them.

A shared file system takes as long to open a small file as to read it, and many clusters limit the
number of files. Each split of a packed dataset has in `<data folder>/packed/<name>/`

    <split>.json    its contents: which of the other files it consists of; written last
    *.npz           an index: name, class and place of each image
    *.tar           the images

The last two are named after what is in them, so a split that is packed again replaces nothing that
is read: it gets other files, and then other contents.
"""

import os
from pathlib import Path

from ..atomic_files import read_cache
from ..documents import Document, Unfit, from_plain

FORMAT = 1
CONTENTS_SUFFIX = ".json"


class Contents(Document, frozen=True, kw_only=True):
    """What a packed split consists of."""

    format: int
    """Of all its files."""
    index: str
    """The name of its index."""
    sizes: dict[str, int]
    """File -> bytes, of the index and of the tar files."""


def pack_folder(data_root: Path, name: str) -> Path:
    """Return the folder of a packed dataset.

    Args:
        data_root: the data folder.
        name: of a dataset of the catalogue; of a folder of images, its fingerprint. A folder that
            has changed has another one, and so no pack.
    """
    return data_root / "packed" / name.replace(":", "-")


def contents_of(folder: Path, split: str) -> Contents | None:
    """Return what a packed split consists of; None where it is not there, or not whole.

    Args:
        folder: of a packed dataset.
        split: train, test, or another set.
    """
    try:
        found = from_plain(read_cache(folder / f"{split}{CONTENTS_SUFFIX}"), Contents)
        is_whole = all(os.stat(folder / name).st_size == size for name, size in found.sizes.items())
    except (OSError, Unfit):
        # Also where it cannot be entered: a dataset may still be read from its own files.
        return None
    return found if is_whole and found.format == FORMAT else None


def is_packed(data_root: Path, name: str, split: str) -> bool:
    """Whether a split of a dataset can be read from a pack."""
    return contents_of(pack_folder(data_root, name), split) is not None

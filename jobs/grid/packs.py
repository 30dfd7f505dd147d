"""Where a dataset's images lie in a few large files: `data prepare --pack` makes them.

A shared file system takes as long to open a small file as to read it, and many clusters limit the
number of files. In `<data folder>/packed/<name>/` each split has an index, `<split>.npz`, and its
images are members of the tar files beside it.
"""

from pathlib import Path

INDEX_SUFFIX = ".npz"


def pack_folder(data_root: Path, name: str) -> Path:
    """Return the folder of a packed dataset.

    Args:
        data_root: the data folder.
        name: of a dataset of the catalogue; of a folder of images its fingerprint, so a pack of
            what the folder held before is never read.
    """
    return data_root / "packed" / name.replace(":", "-")


def index_of(data_root: Path, name: str, split: str) -> Path:
    """Return the index of a split; it is there where the split is packed."""
    return pack_folder(data_root, name) / f"{split}{INDEX_SUFFIX}"


def is_packed(data_root: Path, name: str, split: str) -> bool:
    """Whether a split of a dataset lies in a pack."""
    return index_of(data_root, name, split).is_file()

"""A checkpoint's manifest: what belongs to it, and whether it is all there.

No torch, so that agents can verify.
"""

import json
from pathlib import Path

from ...jobs.documents import Document, from_plain
from ...jobs.grid.image_folder import file_sha256
from ..environment import Origin

MANIFEST = "manifest.json"
MODEL = "model.safetensors"
EMA = "ema.safetensors"
STATE = "train.pt"
# Of the last checkpoint: which images of each set the final weights classify rightly, a bit each.
CORRECT = "correct.safetensors"
CHOSEN = "chosen.safetensors"


class Rejected(Exception):
    """A checkpoint that must not be used."""


class Missing(Rejected):
    """A checkpoint whose folder is gone: retention removes old ones on purpose."""


class StoredFile(Document, frozen=True, kw_only=True):
    """One file of a checkpoint, as it was written."""

    bytes: int
    sha256: str


class Manifest(Document, frozen=True, kw_only=True):
    """The content of `manifest.json`: the facts of one checkpoint."""

    run_id: str
    epoch: int
    step: int
    """Steps since the beginning of the run."""
    files: dict[str, StoredFile]
    origin: Origin
    """What an exact resume must share."""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


def verify(folder: Path, *, run_id: str, only: tuple[str, ...] | None = None) -> Manifest:
    """Read a checkpoint's manifest and check its files against it.

    Args:
        folder: the checkpoint.
        run_id: whose it must be.
        only: the files that are needed; by default all.

    Raises:
        Rejected: with the reason.
    """
    manifest = _read(folder)
    if manifest.run_id != run_id:
        raise Rejected(f"belongs to run {manifest.run_id}")
    for name in only or {MODEL: None, STATE: None, **manifest.files}:
        if name not in manifest.files:
            raise Rejected(f"has no {name}")
        _verify_file(folder / name, manifest.files[name])
    return manifest


def _read(folder: Path) -> Manifest:
    try:
        manifest = from_plain(json.loads((folder / MANIFEST).read_bytes()), Manifest)
        if not all(name in (MODEL, EMA, STATE, CORRECT, CHOSEN) for name in manifest.files):
            raise ValueError("its list of files is invalid")
    except FileNotFoundError:
        raise (Rejected("no manifest") if folder.exists() else Missing("missing")) from None
    except (OSError, ValueError) as error:
        raise Rejected(f"manifest cannot be read: {error}") from None
    return manifest


def _verify_file(path: Path, stored: StoredFile) -> None:
    try:
        size = path.stat().st_size
        if size != stored.bytes:
            raise Rejected(f"{path.name}: {size} bytes, expected {stored.bytes}")
        if file_sha256(path) != stored.sha256:
            raise Rejected(f"{path.name}: checksum mismatch")
    except OSError as error:
        raise Rejected(f"{path.name}: {error.strerror or error}") from None

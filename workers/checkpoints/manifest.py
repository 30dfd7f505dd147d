"""A checkpoint's manifest: what belongs to it, and whether it is all there.

No torch, so that agents can verify.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...jobs.grid.image_folder import file_sha256

MANIFEST = "manifest.json"
MODEL = "model.safetensors"
EMA = "ema.safetensors"
STATE = "train.pt"
# Of the last checkpoint: which images of each set the final weights classify rightly, a bit each.
CORRECT = "correct.safetensors"


class Rejected(Exception):
    """A checkpoint that must not be used."""


class Missing(Rejected):
    """A checkpoint whose folder is gone: retention removes old ones on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The facts of one checkpoint."""

    run_id: str
    epoch: int
    step: int
    """Steps since the beginning of the run."""
    files: dict[str, dict[str, Any]]
    """Name -> {"bytes": …, "sha256": …}."""
    origin: dict[str, Any]
    """world_size, threads, device, software: what an exact resume must share."""

    @property
    def bytes(self) -> int:
        return sum(int(facts["bytes"]) for facts in self.files.values())


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
        manifest = Manifest(**json.loads((folder / MANIFEST).read_bytes()))
        known = all(name in (MODEL, EMA, STATE, CORRECT) for name in manifest.files)
        if not known or not all(
            {"bytes", "sha256"} <= facts.keys() for facts in manifest.files.values()
        ):
            raise ValueError("its list of files is invalid")
    except FileNotFoundError:
        raise (Rejected("no manifest") if folder.exists() else Missing("missing")) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Rejected(f"manifest cannot be read: {error}") from None
    return manifest


def _verify_file(path: Path, facts: dict[str, Any]) -> None:
    try:
        size = path.stat().st_size
        if size != facts["bytes"]:
            raise Rejected(f"{path.name}: {size} bytes, expected {facts['bytes']}")
        if file_sha256(path) != facts["sha256"]:
            raise Rejected(f"{path.name}: checksum mismatch")
    except OSError as error:
        raise Rejected(f"{path.name}: {error.strerror or error}") from None

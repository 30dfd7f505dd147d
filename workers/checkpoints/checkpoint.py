"""Write and read checkpoints: staged, hashed, fsynced, renamed.

Read without unpickling arbitrary objects.
"""

import errno
import io
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from ...jobs.atomic_files import fsync_folder, make_folder, open_file
from ...jobs.documents import to_plain
from ..environment import Origin
from .manifest import CHOSEN, CORRECT, EMA, MANIFEST, MODEL, STATE, Manifest, StoredFile

KEEP = 2
STAGE_PREFIX = ".stage-"


def save(
    folder: Path,
    *,
    run_id: str,
    epoch: int,
    step: int,
    model: dict[str, Tensor],
    ema: dict[str, Tensor] | None,
    state: dict[str, Any],
    origin: Origin,
    correct: dict[str, Tensor] | None = None,
    chosen: dict[str, Tensor] | None = None,
) -> tuple[Path, int]:
    """Publish a checkpoint as `folder/step-<step>`; return its path and size in bytes.

    Of `correct`, set -> [N] bool, eight images go into a byte, the first one in its highest bit; N
    is in the metadata. Of `chosen`, set -> [N] of whole numbers, classes are stored as int16 where
    all fit, else as int32.

    It is either whole and on disk when this returns, or not there. Older ones but the last two are
    then removed.

    Raises:
        OSError: the disk is full or failing, or the attempt's folder is not there; earlier
            checkpoints are untouched.
    """
    from safetensors.torch import save as to_bytes

    # Nothing above it is made: it would stand at the old path of a workspace that was moved, or in
    # the way of one that is to be mounted again.
    if not folder.parent.is_dir():
        raise OSError(errno.ESTALE, "the folder of the attempt is away", str(folder.parent))
    make_folder(folder)
    contents = {MODEL: to_bytes(_plain(model)), STATE: _torch_bytes(state)}
    if ema is not None:
        contents[EMA] = to_bytes(_plain(ema))
    if correct:
        packed = {
            name: torch.from_numpy(numpy.packbits(bits.numpy())) for name, bits in correct.items()
        }
        contents[CORRECT] = to_bytes(
            packed, {name: str(len(bits)) for name, bits in correct.items()}
        )
    if chosen:
        contents[CHOSEN] = to_bytes({name: _narrow(classes) for name, classes in chosen.items()})
    total = sum(len(data) for data in contents.values())
    _require_space(folder, total)
    staged = folder / f"{STAGE_PREFIX}{step}-{secrets.token_hex(4)}"
    make_folder(staged)
    try:
        files = {name: _write(staged / name, data) for name, data in contents.items()}
        manifest = Manifest(run_id=run_id, epoch=epoch, step=step, files=files, origin=origin)
        _write(staged / MANIFEST, json.dumps(to_plain(manifest)).encode())
        fsync_folder(staged)
        target = folder / f"step-{step:09d}"
        os.rename(staged, target)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    fsync_folder(folder)
    return target, total


def _narrow(classes: Tensor) -> Tensor:
    fits = not len(classes) or int(classes.max()) <= torch.iinfo(torch.int16).max
    return classes.to(torch.int16 if fits else torch.int32)


def keep_newest(folder: Path, count: int = KEEP) -> None:
    """Remove all but the newest checkpoints, and what was staged and never published."""
    published = sorted(folder.glob("step-*"))
    for old in [*published[:-count], *folder.glob(f"{STAGE_PREFIX}*")]:
        # Out of sight first: a half-removed folder must not look like a damaged checkpoint.
        hidden = (
            old
            if old.name.startswith(STAGE_PREFIX)
            else old.with_name(f"{STAGE_PREFIX}old-{old.name}")
        )
        if hidden != old:
            os.rename(old, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def load(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor] | None, dict[str, Any]]:
    """Read a verified checkpoint: model, EMA (or None), and the rest of the training state."""
    from safetensors.torch import load_file

    state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    ema = load_file(str(folder / EMA)) if (folder / EMA).exists() else None
    return load_file(str(folder / MODEL)), ema, state


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor.detach().to("cpu").contiguous().clone() for name, tensor in tensors.items()
    }


def _torch_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _require_space(folder: Path, needed: int) -> None:
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < needed * 1.2:
        raise OSError(errno.ENOSPC, f"no space for a checkpoint of {needed} bytes", str(folder))


def _write(path: Path, data: bytes) -> StoredFile:
    import hashlib

    handle = open_file(path, os.O_EXCL | os.O_WRONLY)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return StoredFile(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

"""Small file operations that other processes may watch.

Whole or not at all, and on disk when they return.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def fsync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_new(path: Path, data: bytes) -> bool:
    """Create a file with this content, durably; return whether this call created it.

    The file appears whole: it is written beside its place, then linked, which fails where it
    exists.
    """
    staged = _stage(path, data)
    try:
        os.link(staged, path)
    except FileExistsError:
        return False
    finally:
        staged.unlink()
    fsync_folder(path.parent)
    return True


def write_over(path: Path, data: bytes) -> None:
    """Create or replace a file with this content, durably and atomically."""
    os.replace(_stage(path, data), path)
    fsync_folder(path.parent)


def touch_new(path: Path) -> bool:
    """Create an empty file by O_EXCL, durably; return whether this call created it."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
    except FileExistsError:
        return False
    os.fsync(handle)
    os.close(handle)
    fsync_folder(path.parent)
    return True


def make_folder(folder: Path) -> Path:
    """Create a folder and its parents, private to the user."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    return folder


def read_json(path: Path) -> Any | None:
    """Return the JSON in a file, or None where there is no such file."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def read_cache(path: Path) -> dict[str, Any]:
    """Return the mapping in a file of what can be computed again.

    Empty where it is missing or damaged.
    """
    try:
        found = read_json(path)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def to_json(value: Any) -> bytes:
    """Write a value as JSON bytes for a file."""
    return (json.dumps(value, sort_keys=True, allow_nan=False) + "\n").encode()


def _stage(path: Path, data: bytes) -> Path:
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(staged, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    return staged

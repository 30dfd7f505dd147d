"""Small file operations that other processes may watch.

Whole or not at all, and on disk when they return.

`open_file` and `make_folder` are the one door through which the files of a workspace are made.
Their modes are what the umask leaves; below a folder that a group shares they are the group's.
"""

import json
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import Any

from .errors import DamagedFile

# A folder that a group shares, and the files in it. The set-group-ID bit gives what is made there
# the folder's group.
SHARED_FOLDER, SHARED_FILE = 0o2770, 0o660


def open_file(path: Path, flags: int) -> int:
    """Open a file to write, and make it if it is not there; return the handle."""
    handle = os.open(path, flags | os.O_CREAT, 0o666)
    if is_shared(path.parent):
        share_file(handle)
    return handle


def append_line(path: Path, data: bytes) -> None:
    """Append a line to a file: one write, so that two processes at once lose none.

    Args:
        path: of a file, which is made if it is not there.
        data: the line with its line break.
    """
    # Its folder may not be there yet.
    make_folder(path.parent)
    handle = open_file(path, os.O_WRONLY | os.O_APPEND)
    try:
        # A line that a full disk cut short must not take the next one with it.
        os.write(handle, (b"\n" if _is_cut(path) else b"") + data)
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_cut(path: Path) -> bool:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 1))
        return stream.read(1) not in (b"", b"\n")


def share_file(handle: int) -> None:
    """Give an open file the mode of files that a group shares, if it is this user's."""
    found = os.fstat(handle)
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != SHARED_FILE:
        os.fchmod(handle, SHARED_FILE)


def make_folder(folder: Path) -> Path:
    """Create a folder and its parents."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    # Of a folder that is there, too: who made it may be between these two lines, or was killed.
    if is_shared(folder.parent) and not is_shared(folder) and folder.stat().st_uid == os.geteuid():
        folder.chmod(SHARED_FOLDER)
    return folder


def make_private_folder(folder: Path) -> Path:
    """Create a folder that only this user can enter, for what is not in a workspace."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def share_folder(folder: Path, group: str) -> None:
    """Let a group share a folder, and with it whatever is made there from now on."""
    shutil.chown(folder, group=group)
    # After the group: changing that may take the set-group-ID bit away.
    folder.chmod(SHARED_FOLDER)


def is_shared(folder: Path) -> bool:
    """Return whether a group shares a folder: its mode says so, also to agents on other nodes."""
    return stat.S_IMODE(folder.stat().st_mode) == SHARED_FOLDER


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
        handle = open_file(path, os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.fsync(handle)
    os.close(handle)
    fsync_folder(path.parent)
    return True


def current_umask() -> int:
    """Return the umask of this process."""
    # It can only be read by setting it, and other threads may be making files.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077


def read_json(path: Path) -> Any | None:
    """Return the JSON in a file, or None where there is no such file.

    Raises:
        DamagedFile: it holds no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: {error}") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in a file, empty where there is no such file.

    Raises:
        DamagedFile: it holds something else.
    """
    found = read_json(path)
    if not isinstance(found, dict | None):
        raise DamagedFile(f"{path} is damaged: not a mapping")
    return found or {}


def read_cache(path: Path) -> dict[str, Any]:
    """Return the mapping in a file of what can be computed again.

    Empty where it is missing or damaged.
    """
    try:
        return read_mapping(path)
    except DamagedFile:
        return {}


def to_json(value: Any) -> bytes:
    """Write a value as JSON bytes for a file."""
    return (json.dumps(value, sort_keys=True, allow_nan=False) + "\n").encode()


def _stage(path: Path, data: bytes) -> Path:
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = open_file(staged, os.O_EXCL | os.O_WRONLY)
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

"""The decoded sets of images that a workspace keeps."""

import os
import time
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.decoded_sets import IN_USE_S, decoded_sets, make_room, touch, unused


def kept(folder: Path, name: str, *, age_s: float, size: int = 100) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "00000.u8").write_bytes(bytes(size))
    used = time.time() - age_s
    os.utime(path, (used, used))
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_sets_are_listed_by_their_last_use(tmp_path: Path) -> None:
    kept(tmp_path, "new", age_s=10, size=7)
    kept(tmp_path, "old", age_s=1000, size=5)
    assert [(one.path.name, one.bytes) for one in decoded_sets(tmp_path)] == [
        ("old", 5),
        ("new", 7),
    ]


def test_a_workspace_without_sets_has_none(tmp_path: Path) -> None:
    assert decoded_sets(tmp_path / "none") == []


def test_a_set_that_is_used_is_not_unused(tmp_path: Path) -> None:
    path = kept(tmp_path, "old", age_s=1000)
    assert unused(tmp_path, since_s=500)
    touch(path)
    assert not unused(tmp_path, since_s=500)


def test_room_is_made_by_the_sets_that_were_used_longest_ago(tmp_path: Path) -> None:
    for number in range(3):
        kept(tmp_path, f"set-{number}", age_s=IN_USE_S + 1000 - number)
    make_room(tmp_path, 100, 300)
    assert names(tmp_path) == ["set-1", "set-2"]


def test_a_set_that_a_run_may_have_mapped_never_goes(tmp_path: Path) -> None:
    kept(tmp_path, "in-use", age_s=IN_USE_S - 1000)
    with pytest.raises(OSError, match="decoded_gib"):
        make_room(tmp_path, 100, 150)
    assert names(tmp_path) == ["in-use"]

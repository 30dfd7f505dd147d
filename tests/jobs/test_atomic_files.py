"""The modes of what is made through the one door."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.jobs.atomic_files import (
    current_umask,
    is_shared,
    make_folder,
    make_private_folder,
    open_file,
    touch_new,
    write_new,
    write_over,
)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The usual one, whatever the tests run under."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that a group shares."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2770)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def made(folder: Path) -> dict[str, int]:
    """Make a file in each way there is; return their modes."""
    write_new(folder / "new", b"1")
    write_over(folder / "over", b"1")
    touch_new(folder / "touched")
    os.close(open_file(folder / "opened", os.O_WRONLY))
    return {path.name: mode(path) for path in folder.iterdir()}


def test_files_and_folders_are_made_as_the_umask_says(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "a" / "b")
    assert (mode(folder), mode(folder.parent)) == (0o755, 0o755)
    assert set(made(folder).values()) == {0o644}


def test_below_a_shared_folder_everything_is_shared(shared: Path) -> None:
    folder = make_folder(shared / "a" / "b")
    assert is_shared(folder) and is_shared(folder.parent)
    assert set(made(folder).values()) == {0o660}


def test_a_folder_whose_maker_was_killed_is_shared_by_the_next_who_needs_it(shared: Path) -> None:
    (shared / "a").mkdir()
    assert not is_shared(shared / "a")
    make_folder(shared / "a")
    assert is_shared(shared / "a")


def test_a_file_that_was_there_is_shared_when_it_is_opened(shared: Path) -> None:
    (shared / "lock").touch(mode=0o600)
    os.close(open_file(shared / "lock", os.O_RDWR))
    assert mode(shared / "lock") == 0o660


def test_a_private_folder_is_the_users_alone_whatever_the_umask(shared: Path) -> None:
    assert mode(make_private_folder(shared / "cache")) & 0o777 == 0o700


def test_the_umask_is_read_and_not_changed() -> None:
    os.umask(0o027)
    assert current_umask() == 0o027
    assert os.umask(0o027) == 0o027

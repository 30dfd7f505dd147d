"""A process knows when the workspace that it serves is gone, and when it only cannot be seen."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.jobs.workspace.presence import Presence, WorkspaceGone


@pytest.fixture
def served(tmp_path: Path) -> Presence:
    """What watches a workspace that was just made."""
    workspace = Workspace(tmp_path / "runs")
    workspace.create()
    return Presence(workspace, every_s=0)


def test_a_workspace_that_nobody_touched_is_there(served: Presence) -> None:
    assert not served.is_gone()
    served.require()


def test_a_deleted_workspace_is_gone(served: Presence) -> None:
    shutil.rmtree(served.workspace.root)
    assert served.is_gone()
    with pytest.raises(WorkspaceGone, match="was deleted, moved or replaced"):
        served.require()


def test_a_workspace_is_gone_where_a_new_one_has_its_place(served: Presence) -> None:
    shutil.rmtree(served.workspace.root)
    served.workspace.create()
    assert served.is_gone()


def test_a_workspace_is_gone_where_it_was_moved_away_for_a_new_one(served: Presence) -> None:
    served.workspace.root.rename(served.workspace.root.with_name("old"))
    served.workspace.create()
    assert served.is_gone()


def test_what_is_gone_does_not_come_back(served: Presence) -> None:
    shutil.rmtree(served.workspace.root)
    assert served.is_gone()
    served.workspace.root.mkdir()
    assert served.is_gone()


def test_a_workspace_that_was_moved_is_gone(served: Presence) -> None:
    root = served.workspace.root
    root.rename(root.with_name("elsewhere"))
    assert served.is_gone()


def test_a_workspace_below_a_folder_that_was_moved_is_gone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "lab" / "runs").create()
    served = Presence(workspace, every_s=0)
    (tmp_path / "lab").rename(tmp_path / "elsewhere")
    assert served.is_gone()


def test_a_file_system_that_is_not_mounted_says_nothing(mount: Path) -> None:
    served = Presence(Workspace(mount / "runs").create(), every_s=0)
    disk = mount.readlink()
    mount.unlink()
    assert not served.is_gone() and not served.is_there()
    mount.symlink_to(disk)
    assert not served.is_gone() and served.is_there()


def test_an_identity_that_was_restored_from_its_copy_is_the_same(served: Presence) -> None:
    served.workspace.identity.unlink()
    assert not served.is_gone(), "the copy says that the workspace is still there"
    shutil.copy(served.workspace.identity_copy, served.workspace.identity)
    assert not served.is_gone()


def test_a_damaged_identity_says_nothing(served: Presence) -> None:
    damaged = served.workspace.root / "damaged"
    damaged.write_bytes(b"\0" * 40)
    os.replace(damaged, served.workspace.identity)
    assert not served.is_gone()


def test_a_workspace_is_gone_only_after_it_was_seen_deleted_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("vtjobs.jobs.workspace.presence.time.monotonic", lambda: now[0])
    workspace = Workspace(tmp_path / "runs")
    workspace.create()
    served = Presence(workspace, every_s=1.0)
    shutil.rmtree(workspace.root)
    seen = []
    for _ in range(5):
        seen.append(served.is_gone())
        now[0] += 1.0
    assert seen == [False, False, False, True, True]


def _fails_with(number: int) -> Callable[..., os.stat_result]:
    def fail(*_: object, **__: object) -> os.stat_result:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_workspace_that_another_host_replaced_is_gone(
    served: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(served.workspace.root)
    served.workspace.create()
    # A network file system no longer has the open file.
    stale, real = _fails_with(errno.ESTALE), os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: stale() if fd == served._held else real(fd))
    assert served.is_gone()


def test_a_file_that_a_network_file_system_deleted_only_by_another_name_is_deleted(
    served: Presence,
) -> None:
    # The client keeps what is open in a file of its own.
    served.workspace.identity.rename(served.workspace.root / ".nfs000000000001")
    served.workspace.identity_copy.unlink()
    assert served.is_gone()


def test_a_file_system_that_does_not_answer_says_nothing(
    served: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "stat", _fails_with(errno.EIO))
    assert not served.is_gone()


def test_a_workspace_that_was_deleted_before_the_first_look_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceGone, match="was deleted"):
        Presence(Workspace(tmp_path / "runs"))

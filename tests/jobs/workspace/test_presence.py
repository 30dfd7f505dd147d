"""A process knows when the workspace that it serves is gone, and when it only cannot be seen."""

import os
import shutil
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
    with pytest.raises(WorkspaceGone, match="was deleted or replaced"):
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


def test_a_file_system_that_is_not_mounted_says_nothing(served: Presence) -> None:
    # The open file keeps its name: nobody deleted it.
    root = served.workspace.root
    root.rename(root.with_name("away"))
    assert not served.is_gone()
    root.with_name("away").rename(root)
    assert not served.is_gone()


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

"""Submissions that wait until an allocation to which they gave way has begun."""

import os
from pathlib import Path

import pytest

from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.jobs.workspace.unsent import GIVEN_S, Unsent, gives_way_to

RUN = "ab" * 8


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """One with an allocation that waits, and a submission that gives way to it."""
    made = Workspace(tmp_path).create()
    other = Allocation(
        token="vtj-other", created_at=1.0, shape=Shape(backend="ray"), lanes=1, data_root="/none",
        tasks=((Task(run_id=RUN, attempt=2, grid_id="g"),),),
    )  # fmt: skip
    write_new(made.allocation(other.token), to_json(other.to_dict()))
    left = Unsent(backend="ray", command=["true"], gives_way_to=other.token)
    write_new(made.unsent("vtj-mine"), to_json(to_plain(left)))
    return made


def test_what_gave_way_waits_until_the_other_one_has_claimed_a_run(workspace: Workspace) -> None:
    assert gives_way_to(workspace, "vtj-mine") == "vtj-other"
    workspace.run(RUN).claim(2)
    assert gives_way_to(workspace, "vtj-mine") is None


def test_it_waits_for_nothing_that_was_cancelled(workspace: Workspace) -> None:
    workspace.run(RUN).cancel(2)
    assert gives_way_to(workspace, "vtj-mine") is None


def test_it_does_not_wait_for_ever_for_a_job_that_never_starts(workspace: Workspace) -> None:
    path = workspace.unsent("vtj-mine")
    long_ago = path.stat().st_mtime - GIVEN_S
    os.utime(path, (long_ago, long_ago))
    assert gives_way_to(workspace, "vtj-mine") is None


@pytest.mark.parametrize("name", ["vtj-mine.unsent", "vtj-other.json"])
def test_a_damaged_file_holds_nothing_back(workspace: Workspace, name: str) -> None:
    (workspace.allocations / name).write_text("")
    assert gives_way_to(workspace, "vtj-mine") is None

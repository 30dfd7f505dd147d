"""The markers that keep a grid's runs from starting."""

from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.atomic_files import make_folder, to_json, write_over
from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.markers import closed
from vtjobs.jobs.workspace.paths import Workspace

GRID = "tiny-1"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "runs").create()
    made.grid(GRID).mkdir()
    return made


def mark(workspace: Workspace, name: str, **content: Any) -> None:
    write_over(workspace.marker(GRID, name), to_json(content))


def reasons(workspace: Workspace, *run_ids: str) -> list[str]:
    found = map(closed(workspace, GRID), run_ids)
    return [kept.text if kept else "" for kept in found]


def test_without_markers_everything_may_start(workspace: Workspace) -> None:
    assert reasons(workspace, "a", "b") == ["", ""]
    assert closed(workspace, "no-such-grid")("a") is None


def test_what_is_held_may_not_start_and_the_rest_may(workspace: Workspace) -> None:
    mark(workspace, "hold", runs=["a"])
    assert reasons(workspace, "a", "b") == ["held", ""]


def test_before_the_canary_has_passed_only_it_may_start(workspace: Workspace) -> None:
    mark(workspace, "canary", runs=["a"], passed=False)
    assert reasons(workspace, "a", "b") == ["", "waits for the canary"]
    mark(workspace, "canary", runs=["a"], passed=True)
    assert reasons(workspace, "a", "b") == ["", ""]


def test_a_canary_passes_with_the_first_epochs_of_its_runs_though_nobody_makes_a_pass(
    workspace: Workspace,
) -> None:
    mark(workspace, "canary", runs=["a", "b"], passed=False)
    train(workspace, "a")
    assert reasons(workspace, "b", "c") == ["", "waits for the canary"]
    train(workspace, "b")
    assert reasons(workspace, "c") == [""]


def train(workspace: Workspace, run_id: str) -> None:
    """Have a run finish its first epoch."""
    folder = workspace.run(run_id)
    make_folder(folder.attempt(1))
    writer = JournalWriter(folder.journal(1, 0))
    writer.write("start", at=1.0, attempt=1)
    writer.write("epoch", at=2.0, epoch=1, step=8, metrics={})
    writer.close()


def test_a_canary_without_runs_keeps_nobody(workspace: Workspace) -> None:
    mark(workspace, "canary", runs=[], passed=False)
    assert reasons(workspace, "b") == [""]


def test_a_tripped_breaker_stops_all_and_says_why(workspace: Workspace) -> None:
    mark(
        workspace,
        "breaker",
        **{"class": "user_error", "signature": "ValueError: no", "runs": ["a", "b", "c"]},
    )
    assert reasons(workspace, "a", "d") == ["circuit breaker: ValueError: no"] * 2


def test_what_the_user_holds_is_told_before_anything_else(workspace: Workspace) -> None:
    mark(workspace, "hold", runs=["a"])
    mark(workspace, "breaker", signature="x", runs=[])
    mark(workspace, "canary", runs=["c"], passed=False)
    assert reasons(workspace, "a", "b", "c") == ["held", "circuit breaker: x", "circuit breaker: x"]


def test_the_markers_are_read_once(workspace: Workspace) -> None:
    before = closed(workspace, GRID)
    mark(workspace, "hold", runs=["a"])
    assert before("a") is None
    assert reasons(workspace, "a") == ["held"]


def test_another_grids_markers_are_its_own(workspace: Workspace) -> None:
    mark(workspace, "hold", runs=["a"])
    assert closed(workspace, "tiny-2")("a") is None

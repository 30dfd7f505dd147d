"""Fixtures of the orchestrator's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.paths import Workspace

from ..conftest import end_processes


@pytest.fixture
def quiet_workspace(tmp_path: Path) -> Iterator[Workspace]:
    """An empty workspace without a ledger."""
    workspace = Workspace(tmp_path / "runs").create()
    yield workspace
    end_processes(workspace.root)

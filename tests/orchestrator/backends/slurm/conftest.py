"""Fixtures of the SLURM backend's tests.

Its commands as small scripts on PATH, which print what the real ones did.
"""

from pathlib import Path

import pytest

from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.slurm import limits, walltime

from ....support.scheduler import Commands


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A folder at the head of PATH for commands that answer as the test says.

    No limits are remembered.
    """
    made = Commands(tmp_path / "bin")
    monkeypatch.setenv("PATH", made.path)
    monkeypatch.setattr(walltime, "_KNOWN", {})
    monkeypatch.setattr(limits, "_known", None)
    return made


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs").create()

"""A tool of the workers that refuses, fails or is killed says so in one message."""

import signal
from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput, VtjobsError
from vtjobs.orchestrator.housekeeping.worker_tool import run_tool


def test_a_tool_answers_on_its_standard_output() -> None:
    assert "vit_tiny_patch16_224" in run_tool("model_names", [])


def test_what_a_tool_refuses_is_bad_input_with_its_own_message() -> None:
    with pytest.raises(BadInput, match="the following arguments are required: --workspace"):
        run_tool("export", [])


def test_a_tool_that_is_killed_is_told_by_its_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python runs what `sitecustomize` says before the tool begins."""
    code = f"import os\nos.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(VtjobsError, match=r"^export was ended by SIGKILL, as happens when memory"):
        run_tool("export", [])

"""The measurements for a GPU, in the small form that a CPU can run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


@pytest.mark.long
def test_everything_that_a_gpu_has_to_tell_is_measured_and_resumed_runs_are_equal(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, PROGRAM, "--small", "--json", kept],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(kept.read_text())
    assert {figure["part"] for figure in figures} == {"equality", "speed", "loader", "warm"}
    for figure in figures:
        assert (figure["value"] == 0) == (figure["part"] == "equality"), figure

"""A workspace that the pages are about."""

import pytest

from ..support.grids import tiny_grid
from ..support.journals import ended, journal, scored, started
from ..support.lab import Lab

HOSTILE = "<script>alert(1)</script> \x1b[31mred\x1b[0m \u202edrawkcab"


@pytest.fixture
def half_done(quiet_lab: Lab) -> Lab:
    """Two cells of two seeds: one is done, of the other a seed failed and one waits."""
    runs = quiet_lab.submit(tiny_grid(heads="[supervised, relvit]", extra="retries: 1"))
    quiet_lab.tick()
    for run_id, top1 in zip(runs[:2], (60.0, 62.0), strict=True):
        journal(quiet_lab, run_id, 1, started(), scored(top1), ended("completed"))
    error = ended(
        "failed",
        "user_error",
        signature="Error: #",
        error=f'Traceback (most recent call last):\n  File "head.py", line 3, in forward\nError: 7 {HOSTILE}',
    )
    journal(quiet_lab, runs[2], 1, started(), error)
    logs = quiet_lab.run(runs[2]).logs(1)
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "rank-0.log").write_text(f"first\n{HOSTILE}\nlast\n", encoding="utf-8")
    quiet_lab.tick(start=False)
    return quiet_lab

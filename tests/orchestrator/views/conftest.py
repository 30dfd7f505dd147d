"""A workspace with a run of each kind, as the reading commands find it."""

import pytest

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab


@pytest.fixture
def runs(quiet_lab: Lab) -> list[str]:
    """Four runs: completed, failed, running, queued."""
    found = quiet_lab.submit(tiny_grid(seeds="4", extra="retries: 1"))
    quiet_lab.tick()
    journal(quiet_lab, found[0], 1, started(), scored(91.5), ended("completed"))
    failure = ended(
        "failed",
        "user_error",
        signature="ValueError: no at x.py:f",
        error='Traceback (most recent call last):\n  File "x.py", line 3, in f\nValueError: no 17\n',
        exit_code=70,
    )
    journal(quiet_lab, found[1], 1, started(host="h2"), failure)
    journal(quiet_lab, found[2], 1, started(), ("progress", {"epoch": 1, "step": 3, "steps": 16}))
    quiet_lab.tick()
    return found

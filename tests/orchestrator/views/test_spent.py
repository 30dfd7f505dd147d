"""What runs cost, in groups."""

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.views.spent import KEYS, Spent, spent

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab


@pytest.fixture
def worked(quiet_lab: Lab) -> Lab:
    """Two heads with two seeds, an hour each, and one run that has not started."""
    runs = quiet_lab.submit(tiny_grid(heads="[supervised, relvit]", seeds="2"))
    quiet_lab.tick()
    at = quiet_lab.context.clock()
    for run_id in runs[:3]:
        journal(quiet_lab, run_id, 1, started(), ended("completed"), at=at)
    quiet_lab.tick()
    return quiet_lab


def by(lab: Lab, *keys: str) -> list[Spent]:
    return spent(lab.context, Selection(), [*keys])


def test_groups_are_the_combinations_of_the_keys(worked: Lab) -> None:
    found = {tuple(one.group.values()): one.runs for one in by(worked, "dataset", "head")}
    assert found == {("digits", "supervised"): 2, ("digits", "relvit"): 1}


@pytest.mark.paper("DE-19")
@pytest.mark.parametrize("key", KEYS)
def test_every_key_divides_all_attempts(worked: Lab, key: str) -> None:
    found = by(worked, key)
    assert sum(one.attempts for one in found) == 3
    assert all(one.group[key] for one in found)


def test_without_keys_there_is_one_group(worked: Lab) -> None:
    (found,) = by(worked)
    assert (found.group, found.runs, found.attempts) == ({}, 3, 3)


def test_who_submitted_the_grid_is_its_user(worked: Lab) -> None:
    (found,) = by(worked, "user")
    assert "@" in found.group["user"]


def test_an_unknown_key_is_refused(worked: Lab) -> None:
    with pytest.raises(BadInput, match=r"--by uesr: unknown\. Did you mean 'user'"):
        by(worked, "uesr")


def test_weeks_are_those_of_the_calendar(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    # A Monday: 2026 began in the first week of its year.
    journal(quiet_lab, run_id, 1, started(), ended("completed"), at=1767571200.0)
    quiet_lab.tick()
    assert [one.group for one in by(quiet_lab, "week")] == [{"week": "2026-W02"}]


def test_hours_stay_with_the_grid_that_spent_them(worked: Lab) -> None:
    (before,) = by(worked, "grid")
    worked.submit(tiny_grid(name="later", heads="[supervised, relvit]", seeds="3"))
    (after,) = by(worked, "grid")
    assert after.group == before.group and after.attempts == 3

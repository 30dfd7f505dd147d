"""What two runs, cells or grids differ in."""

from typing import Any

import pytest

from vtjobs.jobs.atomic_files import to_json
from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.orchestrator.views.differences import Difference, Differences, differences, flat

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab


def compared(lab: Lab, first: str, second: str) -> Differences:
    return differences(lab.context, parse_selection([first]), parse_selection([second]))


def as_rows(found: list[Difference]) -> dict[str, tuple[Any, Any]]:
    return {one.where: (one.first, one.second) for one in found}


@pytest.fixture
def pair(quiet_lab: Lab) -> list[str]:
    """Two runs of one cell that part at their second epoch, on two machines."""
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    quiet_lab.tick()
    for number, run_id in enumerate(runs):
        first, second = scored(50.0, epoch=1), scored(60.0 + number, epoch=2)
        journal(quiet_lab, run_id, 1, started(), first, second, ended("completed"))
        facts = {
            "host": f"node{number}",
            "software": {"torch": "2.6", "timm": "1.0"},
            "git": {"commit": "abc", "diff": "one\nline more\n" * number},
        }
        path = quiet_lab.run(run_id).attempt(1) / "environment.json"
        path.write_bytes(to_json(facts))
    quiet_lab.tick()
    return runs


def test_two_seeds_of_a_cell_differ_in_their_seed_alone(quiet_lab: Lab, pair: list[str]) -> None:
    found = compared(quiet_lab, *pair)
    assert as_rows(found.settings) == {"seed": (0, 1)}
    assert found.grids == []
    assert as_rows(found.results) == {"test.top1": (60.0, 61.0)}


def test_the_first_epoch_that_differs_is_named(quiet_lab: Lab, pair: list[str]) -> None:
    parting = compared(quiet_lab, *pair).first_epoch
    assert parting is not None
    assert (parting.epoch, parting.set, parting.metric) == (2, "test", "top1")
    assert (parting.first, parting.second) == (60.0, 61.0)


def test_software_and_hardware_are_compared_and_a_code_diff_by_its_length(
    quiet_lab: Lab, pair: list[str]
) -> None:
    assert as_rows(compared(quiet_lab, *pair).environment) == {
        "host": ("node0", "node1"),
        "git.uncommitted_lines": (0, 2),
    }


def test_a_run_is_equal_to_itself(quiet_lab: Lab, pair: list[str]) -> None:
    found = compared(quiet_lab, pair[0], pair[0])
    assert not (found.settings or found.grids or found.environment or found.results)
    assert found.first_epoch is None and found.epochs == 2


def test_of_many_runs_the_values_of_each_side_are_listed(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(name="one", seeds="3"))
    quiet_lab.submit(tiny_grid(name="two", seeds="[1, 2, 7]", epochs=5))
    found = compared(quiet_lab, "one", "two")
    rows = as_rows(found.settings)
    assert rows["seed"] == ([0, 1, 2], [1, 2, 7])
    assert rows["recipe.epochs"][1] == 5
    assert (found.runs.both, found.runs.only_first, found.runs.only_second) == (0, 3, 3)
    assert found.environment == [] and found.results == []


def test_grids_that_share_runs_say_how_many(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(name="one", seeds="2"))
    quiet_lab.submit(tiny_grid(name="two", seeds="3"))
    found = compared(quiet_lab, "one", "two")
    assert (found.runs.both, found.runs.only_first, found.runs.only_second) == (2, 0, 1)
    assert as_rows(found.settings) == {"seed": ([0, 1], [0, 1, 2])}


def test_what_does_not_exist_is_an_error(quiet_lab: Lab, pair: list[str]) -> None:
    with pytest.raises(NothingMatched):
        compared(quiet_lab, pair[0], "nonsense")


def test_a_setting_that_has_its_default_on_one_side_is_named(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(name="one", seeds="1"))
    grid = tiny_grid(name="two", seeds="1").replace("train: {", "train: {loss: bce, ")
    quiet_lab.submit(grid)
    rows = as_rows(compared(quiet_lab, "one", "two").settings)
    assert rows["recipe.loss"] == ("cross_entropy", "bce")


def test_a_grid_is_compared_by_its_own_settings_also_where_a_newer_one_has_its_runs(
    quiet_lab: Lab,
) -> None:
    quiet_lab.submit(tiny_grid(name="one", seeds="2"))
    later = tiny_grid(name="two", seeds="3").replace("resources: {", "resources: {walltime: 4h, ")
    quiet_lab.submit(later)
    rows = as_rows(compared(quiet_lab, "one", "two").grids)
    assert rows == {"resources.walltime": (None, 14400)}


def test_nested_settings_have_dotted_names() -> None:
    document = {"a": {"b": 1, "c": {"d": [2]}}, "e": {}}
    assert flat(document) == {"a.b": 1, "a.c.d": [2], "e": {}}

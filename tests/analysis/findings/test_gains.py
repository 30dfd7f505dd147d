"""The gain of cells over others by epoch, seed by seed."""

from typing import Any

import pytest

from vtjobs.analysis.findings.curves import CellCurve
from vtjobs.analysis.findings.gains import gains
from vtjobs.analysis.stats.curves import band
from vtjobs.jobs.errors import BadInput

Seeds = dict[int, dict[int, float]]

BASELINE: Seeds = {0: {1: 10.0, 2: 20.0, 3: 30.0}, 1: {1: 12.0, 2: 24.0, 3: 34.0}}
BETTER: Seeds = {0: {1: 15.0, 2: 31.0, 3: 40.0}, 1: {1: 13.0, 2: 30.0, 3: 41.0}}


def cell(head: str, seeds: Seeds, *, metric: str = "top1", **more: Any) -> CellCurve:
    labels = {"backbone": "swin_t", "dataset": "cars", "recipe": "r", "stage": "", "axes": {}}
    labels |= {"match_id": "match", "is_baseline": head == "supervised", **more}
    return CellCurve(
        schema_version=1,
        cell_id=f"cell-{head}",
        head=head,
        metric=metric,
        set="test",
        planned=len(seeds),
        epochs=3,
        points=band(seeds),
        runs={str(seed): f"run-{head}-{seed}" for seed in seeds},
        seeds={str(seed): values for seed, values in seeds.items()},
        **labels,
    )


def gain(mine: Seeds, theirs: Seeds, **of: Any) -> CellCurve:
    (found,) = gains(
        [cell("supervised", theirs, **of), cell("drloc", mine, **of)], over="supervised"
    )
    return found


def test_a_gain_is_the_difference_of_two_runs_of_one_seed() -> None:
    found = gain(BETTER, BASELINE)
    assert found.seeds == {"0": {1: 5.0, 2: 11.0, 3: 10.0}, "1": {1: 1.0, 2: 6.0, 3: 7.0}}
    assert [point.mean for point in found.points] == [3.0, 8.5, 8.5]
    assert (found.head, found.over) == ("drloc", "cell-supervised")


def test_only_seeds_and_epochs_that_both_have_count() -> None:
    found = gain({0: {1: 15.0, 2: 31.0}, 7: {1: 99.0}}, BASELINE)
    assert found.seeds == {"0": {1: 5.0, 2: 11.0}}
    assert found.runs == {"0": "run-drloc-0"}


def test_of_a_loss_less_is_a_gain() -> None:
    assert gain({0: {3: 0.5}}, {0: {3: 0.75}}, metric="loss").points[0].mean == 0.25


@pytest.mark.paper("DR-60")
def test_it_is_told_when_a_cell_is_as_good_as_the_other_at_its_end() -> None:
    passing = gain(BETTER, BASELINE).passing
    assert passing is not None
    # 32 on average at the end of the baseline; the means of the other are 14, 30.5 and 40.5.
    assert (passing.level, passing.at, passing.epoch) == (32.0, 3, 3)
    assert passing.seeds == {"0": 2, "1": 3}


def test_a_cell_that_never_gets_there_says_so() -> None:
    passing = gain(BASELINE, BETTER).passing
    assert passing is not None
    assert passing.epoch is None and passing.seeds == {"0": None, "1": None}


def test_before_the_other_has_ended_nothing_is_passed() -> None:
    assert gain(BETTER, {0: {1: 10.0, 2: 20.0}}).passing is None


def test_an_epoch_that_not_all_seeds_have_reached_passes_nothing() -> None:
    passing = gain({0: {1: 15.0, 2: 33.0}, 1: {1: 13.0}}, BASELINE).passing
    assert passing is not None and passing.epoch is None


def test_a_cell_is_held_against_the_one_that_differs_in_its_head_alone() -> None:
    # Labels do not tell: these differ in settings that no column shows.
    cells = [
        cell("supervised", BASELINE, match_id="a"),
        cell("drloc", BETTER, match_id="b"),
        cell("relvit", BETTER, match_id="a"),
    ]
    (found,) = gains(cells, over="supervised")
    assert found.head == "relvit"


@pytest.mark.paper("RV-23")
def test_in_stages_the_supervised_chain_is_the_baseline() -> None:
    cells = [
        cell("supervised-then-supervised", BASELINE, is_baseline=True),
        cell("relvit-then-supervised", BETTER),
    ]
    (found,) = gains(cells, over="supervised")
    assert found.head == "relvit-then-supervised"


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (
            "supervisd",
            "--over supervisd: no selected cell has this head. Did you mean 'supervised'?",
        ),
        (
            "supervised",
            "--over supervised: no selected cell differs from one with this head in its head alone",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(over: str, message: str) -> None:
    cells = [cell("supervised", BASELINE), cell("drloc", BETTER, match_id="other")]
    with pytest.raises(BadInput) as refused:
        gains(cells, over=over)
    assert str(refused.value).startswith(message)

"""When runs will have ended: on simulated grids, and rule by rule."""

from collections.abc import Sequence

import pytest

from vtjobs.jobs.run.eta import Eta, Left, Underway, Waiting, estimate, of_runs, with_running
from vtjobs.jobs.run.pace import Basis, CellFacts, History, Kind, once
from vtjobs.jobs.values import changed

from ...support.simulated_grid import SimulatedGrid

GRIDS = 100
# One run of 100 s was seen of each: the range is 10 % to either side.
HISTORY = History(cells={name: once(100.0) for name in ("cell", "other", "parent")})
WAITING = Waiting(grid_id="grid", cell_id="cell", runs=1)
RUNNING = Underway(
    run_id="run",
    grid_id="grid",
    cell_id="cell",
    started_at=0.0,
    seen_at=60.0,
    step=600,
    steps=1000,
    trained_s=60.0,
)


def eta(
    waiting: Sequence[Waiting] = (),
    running: Sequence[Underway] = (),
    *,
    history: History = HISTORY,
    opening: Sequence[float] = (),
    now: float = 60.0,
) -> Eta:
    left = Left(underway=running, waiting=waiting, openings={"": opening})
    return estimate(left, history, now)["grid"]


def middle(found: Eta) -> float:
    assert found.low_s is not None and found.high_s is not None
    return (found.low_s + found.high_s) / 2


# Simulated grids ----------------------------------------------------------------------------------


def at_half_time(*, has_history: bool) -> tuple[list[float], list[bool]]:
    """Return the errors of the range's middle, as shares of the truth, and whether the truth is in
    the range, of the grids that have an estimate.
    """
    errors, inside = [], []
    for seed in range(GRIDS):
        grid = SimulatedGrid(seed, has_history=has_history)
        now = left_s = grid.end / 2
        found = estimate(grid.left(now), grid.history(now), now)["grid"]
        if found.low_s is None or found.high_s is None:
            continue
        errors.append(abs(middle(found) - left_s) / left_s)
        inside.append(found.low_s <= left_s <= found.high_s)
    return errors, inside


def test_at_half_time_of_cells_with_a_history_the_error_is_at_most_a_quarter() -> None:
    errors, inside = at_half_time(has_history=True)
    assert len(errors) == GRIDS and max(errors) <= 0.25
    assert sum(inside) / len(inside) >= 0.9


def test_at_half_time_of_a_first_grid_the_error_is_at_most_a_quarter_where_something_is_known() -> (
    None
):
    errors, inside = at_half_time(has_history=False)
    assert len(errors) >= GRIDS / 4
    assert sum(error <= 0.25 for error in errors) / len(errors) >= 0.95
    assert sum(inside) / len(inside) >= 0.8


# What runs ----------------------------------------------------------------------------------------


def test_the_progress_of_a_running_run_counts() -> None:
    assert middle(eta(running=[RUNNING])) == pytest.approx(40.0)


def test_time_goes_on_after_the_last_sign_of_life() -> None:
    assert middle(eta(running=[RUNNING], now=70.0)) == pytest.approx(30.0)


def test_set_up_is_no_part_of_the_speed() -> None:
    late = changed(RUNNING, started_at=-30.0)
    known = History(cells=with_running({}, [late]))
    assert middle(eta(running=[late], history=known)) == pytest.approx(40.0, rel=0.15)


def test_a_resumed_run_is_as_fast_as_the_part_that_it_trained_itself() -> None:
    resumed = changed(RUNNING, from_step=300, step=600, trained_s=30.0, started_at=30.0)
    assert resumed.whole_s == pytest.approx(100.0)
    assert middle(eta(running=[resumed])) == pytest.approx(40.0)


def test_the_further_a_run_has_come_the_more_its_own_speed_counts() -> None:
    def slow(step: int) -> float:
        twice = step / 1000 * 200
        run = changed(RUNNING, step=step, trained_s=twice, seen_at=twice)
        return middle(eta(running=[run], now=twice)) / (1 - step / 1000)

    assert 100 < slow(100) < slow(500) < slow(900) < 200


def test_before_its_first_step_a_run_takes_what_its_cell_takes() -> None:
    begun = changed(RUNNING, step=0, trained_s=None, seen_at=2.0)
    assert middle(eta(running=[begun], now=5.0)) == pytest.approx(95.0)


def test_without_any_history_running_runs_are_the_history() -> None:
    running = [RUNNING, changed(RUNNING, run_id="two")]
    known = History(cells=with_running({}, running))
    found = eta([changed(WAITING, runs=2)], running, history=known)
    assert found.basis is Basis.CELL and middle(found) == pytest.approx(140.0, rel=0.01)


def test_each_running_run_has_an_estimate_of_its_own() -> None:
    unknown = changed(RUNNING, run_id="new", cell_id="new")
    found = of_runs([RUNNING, unknown], HISTORY, 60.0)
    assert middle(found["run"]) == pytest.approx(40.0)
    assert found["new"] == Eta(low_s=None, high_s=None, basis=Basis.UNKNOWN, slots=1, unknown=1)


# What waits ---------------------------------------------------------------------------------------


def test_waiting_runs_share_the_slots_that_running_runs_have() -> None:
    running = [RUNNING, changed(RUNNING, run_id="two")]
    found = eta([changed(WAITING, runs=4)], running)
    assert found.slots == 2 and middle(found) == pytest.approx(240.0)


def test_runs_of_others_take_slots_and_their_end_is_not_waited_for() -> None:
    others = changed(WAITING, runs=2, is_selected=False, grid_id="others")
    assert middle(eta([others, WAITING], [RUNNING])) == pytest.approx(340.0)
    assert middle(eta([WAITING, others], [RUNNING])) == pytest.approx(140.0)


def test_a_retry_that_waits_alone_starts_when_its_back_off_is_over() -> None:
    retry = changed(WAITING, not_before=160.0, left=0.5)
    assert middle(eta([retry])) == pytest.approx(150.0)
    assert middle(eta([retry], [RUNNING])) == pytest.approx(150.0)


def test_a_back_off_holds_nobody_else_up() -> None:
    retry = changed(WAITING, not_before=160.0)
    assert middle(eta([retry, WAITING], [RUNNING])) == pytest.approx(240.0)


def test_a_later_stage_begins_after_its_parents() -> None:
    parent = changed(WAITING, cell_id="parent", runs=2)
    child = changed(WAITING, parent_cell="parent", runs=2)
    assert middle(eta([child, parent], opening=[0.0] * 2)) == pytest.approx(200.0)


def test_where_nothing_runs_the_schedulers_own_word_for_the_start_counts() -> None:
    assert middle(eta([WAITING], opening=[360.0])) == pytest.approx(400.0)


def test_where_nobody_knows_when_the_first_starts_nothing_is_said() -> None:
    found = eta([WAITING])
    assert (found.low_s, found.high_s, found.basis) == (None, None, Basis.UNKNOWN)
    assert (found.slots, found.unknown) == (0, 1)


def test_schedulers_do_not_share_their_slots() -> None:
    here = changed(RUNNING, grid_id="here", backend="local")
    there = changed(WAITING, grid_id="there", backend="slurm")
    found = estimate(Left(underway=[here], waiting=[there]), HISTORY, 60.0)
    assert found["here"].slots == 1
    assert found["there"].basis is Basis.UNKNOWN


# What is known ------------------------------------------------------------------------------------


def alike(**cells: float) -> History:
    """Return a history of cells with one backbone and dataset; `new` was never seen."""
    facts = CellFacts(kind=Kind("net", "set"), epochs=10)
    return History(
        cells={name: once(seconds) for name, seconds in cells.items()},
        facts=dict.fromkeys((*cells, "new"), facts) | {"long": changed(facts, epochs=30)},
    )


def test_a_cell_that_was_never_seen_takes_what_its_backbone_and_dataset_take_by_epochs() -> None:
    known = alike(one=100.0, two=140.0)
    found = eta([changed(WAITING, cell_id="long")], history=known, opening=[0.0])
    assert found.basis is Basis.ALIKE and middle(found) == pytest.approx(360.0)


def test_the_range_is_wider_where_cells_alike_stand_for_the_cell() -> None:
    def width(cell_id: str) -> float:
        found = eta([changed(WAITING, cell_id=cell_id)], history=alike(one=100.0), opening=[0.0])
        assert found.low_s is not None and found.high_s is not None
        return found.high_s - found.low_s

    assert width("one") < width("new")


def test_one_run_of_which_nothing_is_known_leaves_the_end_open() -> None:
    unknown = changed(WAITING, cell_id="nothing")
    found = eta([WAITING, unknown], opening=[0.0])
    assert (found.high_s, found.basis, found.unknown) == (None, Basis.UNKNOWN, 1)
    assert found.low_s == pytest.approx(90.0)


def test_chance_evens_out_over_many_runs_and_the_machines_day_does_not() -> None:
    seen = once(50.0) + once(150.0)
    known = History(cells={"cell": seen})

    def doubt(runs: int) -> float:
        found = eta([changed(WAITING, runs=runs)], history=known, opening=[0.0])
        assert found.high_s is not None
        return found.high_s / middle(found) - 1

    assert doubt(1) > 0.5 > doubt(100) > 0.1

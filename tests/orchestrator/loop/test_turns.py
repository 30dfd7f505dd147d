"""Which grid gets the places that are free."""

from vtjobs.orchestrator.loop.turns import Claim, share


def claim(grid_id: str, wanted: int, *, live: int = 0, **free: int) -> Claim:
    return Claim(grid_id=grid_id, wanted=wanted, live=live, free=free)


def test_where_there_is_no_limit_each_gets_what_it_wants() -> None:
    assert share([claim("a", 9), claim("b", 2)]) == {"a": 9, "b": 2}


def test_grids_under_one_limit_take_turns() -> None:
    assert share([claim("a", 9, jobs=5), claim("b", 9, jobs=5)]) == {"a": 3, "b": 2}


def test_what_one_does_not_want_is_the_others() -> None:
    assert share([claim("a", 9, jobs=5), claim("b", 1, jobs=5)]) == {"a": 4, "b": 1}


def test_a_grid_that_has_places_waits_for_those_that_have_fewer() -> None:
    grids = [claim("a", 9, live=3, jobs=4), claim("b", 9, jobs=4), claim("c", 9, live=2, jobs=4)]
    assert share(grids) == {"a": 0, "b": 3, "c": 1}


def test_a_grid_at_its_own_limit_leaves_a_common_one_to_the_others() -> None:
    grids = [claim("a", 9, user=6, qos=1), claim("b", 9, user=6)]
    assert share(grids) == {"a": 1, "b": 5}


def test_a_full_limit_keeps_nobody_out_who_is_not_under_it() -> None:
    assert share([claim("a", 9, qos=0), claim("b", 3, other=7)]) == {"a": 0, "b": 3}


def test_of_two_counts_of_one_limit_the_smaller_holds() -> None:
    assert share([claim("a", 9, jobs=5), claim("b", 9, jobs=2)]) == {"a": 1, "b": 1}

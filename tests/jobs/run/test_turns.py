"""Which grid gets the places that are free."""

from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.run.turns import Claim, gives_way, share


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


def test_a_grid_that_has_nothing_gets_its_turn_whoever_has_the_rest() -> None:
    assert gives_way(mine=1, place=1, theirs=0, asked=1)
    assert gives_way(mine=2, place=1, theirs=0, asked=8)


def test_a_grid_gives_places_back_until_the_other_one_has_as_many() -> None:
    held = [8, 0]
    while gives_way(mine=held[0], place=1, theirs=held[1], asked=1):
        held = [held[0] - 1, held[1] + 1]
    assert held == [4, 4]


def test_what_the_other_grid_does_not_wait_for_is_not_given_back() -> None:
    assert not gives_way(mine=0, place=0, theirs=0, asked=1)


@given(*(st.integers(0, 8) for _ in range(2)), *(st.integers(1, 8) for _ in range(2)))
def test_of_two_grids_at_work_the_one_that_took_a_place_does_not_give_it_back(
    rest: int, theirs: int, place: int, asked: int
) -> None:
    taken = gives_way(mine=rest + place, place=place, theirs=theirs, asked=asked)
    back = gives_way(mine=theirs + asked, place=asked, theirs=rest, asked=place)
    assert not (taken and back and rest and theirs)

"""Designs that vary the streams apart."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.run.design import REPEAT, Design, is_prime, rows, seed_text
from vtjobs.jobs.run.spec import STREAMS, seeds_of


@given(
    st.dictionaries(st.sampled_from(STREAMS), st.integers(2, 4), min_size=2, max_size=2),
    st.integers(1, 2),
)
def test_crossed_is_every_combination_as_often_as_it_is_repeated(
    levels: dict[str, int], repeat: int
) -> None:
    found = rows(
        Design.CROSSED, {name: range(count) for name, count in levels.items()}, repeat=repeat
    )
    combinations = Counter(tuple(row[name] for name in levels) for row in found)
    assert set(combinations) == set(itertools.product(*(range(count) for count in levels.values())))
    assert set(combinations.values()) == {repeat}
    assert all(row[name] == 0 for row in found for name in STREAMS if name not in levels)


@given(st.sampled_from([2, 3, 5, 7]), st.data())
def test_in_an_orthogonal_design_any_two_streams_meet_in_every_pair_of_values_once(
    levels: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(2, min(levels + 1, len(STREAMS))))
    streams = STREAMS[:count]
    found = rows(Design.ORTHOGONAL, dict.fromkeys(streams, range(levels)))
    assert len(found) == levels**2
    for one, other in itertools.combinations(streams, 2):
        assert Counter((row[one], row[other]) for row in found) == dict.fromkeys(
            itertools.product(range(levels), repeat=2), 1
        )


def test_one_at_a_time_moves_each_stream_from_one_base_point_and_then_all_together() -> None:
    found = rows(Design.ONE_AT_A_TIME, {"init": [5, 6, 7], "order": [5, 6, 7]}, repeat=2)
    pairs = [(row["init"], row["order"], row.get(REPEAT, 0)) for row in found]
    assert pairs == [
        (5, 5, 0),
        (5, 5, 1),
        (6, 5, 0),
        (7, 5, 0),
        (5, 6, 0),
        (5, 7, 0),
        (8, 8, 0),
        (9, 9, 0),
        (10, 10, 0),
    ]


def test_a_stream_that_rides_along_has_a_value_for_each_combination() -> None:
    found = rows(
        Design.CROSSED,
        {"init": [0, 1], "order": [0, 1]},
        hold={"split": 9},
        ride=["augment"],
        repeat=2,
    )
    assert [row["augment"] for row in found] == [0, 0, 1, 1, 2, 2, 3, 3], "but a repeat has it too"
    assert {row["split"] for row in found} == {9}


@given(
    st.sampled_from([Design.CROSSED, Design.ORTHOGONAL, Design.ONE_AT_A_TIME]), st.integers(1, 3)
)
def test_no_run_is_planned_twice(design: Design, repeat: int) -> None:
    vary = {"init": range(3), "order": range(3), "drop": range(3)}
    vary = dict(list(vary.items())[:2]) if design is Design.CROSSED else vary
    found = rows(design, vary, repeat=repeat)
    assert len({tuple(sorted(row.items())) for row in found}) == len(found)


def test_primes_are_known() -> None:
    assert [number for number in range(30) if is_prime(number)] == [
        2,
        3,
        5,
        7,
        11,
        13,
        17,
        19,
        23,
        29,
    ]


@pytest.mark.parametrize(
    ("streams", "text"),
    [
        (None, "4"),
        (seeds_of(0) | {"init": 3, "order": 1}, "init 3, order 1"),
        (seeds_of(2) | {REPEAT: 1}, "all 2, repeat 1"),
        (seeds_of(0) | {"init": 3, REPEAT: 2}, "init 3, repeat 2"),
        (seeds_of(5) | {"init": 3}, "init 3, others 5"),
    ],
)
def test_a_run_is_called_by_what_sets_its_streams_apart(
    streams: dict[str, int] | None, text: str
) -> None:
    assert seed_text(4, streams) == text

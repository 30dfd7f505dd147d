"""A study of streams: what is missing, and whether values and what they decided go together."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.analysis.findings.study import AnyStudy, ArmsStudy, study, wiring
from vtjobs.analysis.output.layout import markdown
from vtjobs.analysis.output.study_table import arms_of, of_study
from vtjobs.analysis.stats.balance import whole_part
from vtjobs.analysis.stats.components import components
from vtjobs.db.records import RunRow
from vtjobs.jobs.run.design import Design, StudyDesign, rows
from vtjobs.jobs.run.spec import STREAMS, seed_label, seeds_of
from vtjobs.jobs.values import changed, fields

from ...support.cells import cell

VARIANCE = StudyDesign(
    design=Design.CROSSED,
    vary={"init": [0, 1, 2], "order": [0, 1, 2]},
    hold={},
    ride=[],
    repeat=1,
)
CELL = cell("h", [80.0])


def run_row(number: int, streams: dict[str, int], state: str = "completed") -> RunRow:
    facts: dict[str, Any] = {name: None for name in fields(RunRow)}
    seed = seed_label(streams)
    apart = (
        {"seed": number, "streams": streams} if seed is None else {"seed": seed, "streams": None}
    )
    return RunRow(**{**facts, **apart, "run_id": f"run-{number}", "state": state})


def split(
    variance: StudyDesign, there: list[RunRow], scores: dict[str, float], metric: str = "top1"
) -> AnyStudy:
    return study(variance, there, scores, grid_id="g-1", metric=metric, wiring=[])


def members() -> list[RunRow]:
    planned = rows(Design.CROSSED, VARIANCE.vary)
    return [run_row(number, streams) for number, streams in enumerate(planned)]


SCORES = {f"run-{number}": 80.0 + number % 4 for number in range(9)}


@given(st.permutations(range(9)))
def test_the_order_of_the_runs_changes_nothing(order: list[int]) -> None:
    there = members()
    again = split(VARIANCE, [there[place] for place in order], SCORES)
    assert again == split(VARIANCE, there, SCORES)


def test_a_complete_study_is_split_and_shown() -> None:
    found = split(VARIANCE, members(), SCORES)
    assert (found.n, found.planned, found.missing, found.why_not) == (9, 9, [], "")
    text = markdown(of_study(CELL, found))
    assert "| vit | digits | h | init |" in text and "interactions and hardware" in text
    assert "top1 at the last epoch of 9 runs, crossed: init (3), order (3)." in text


def with_hole(how: str, variance: StudyDesign = VARIANCE, place: int = 5) -> AnyStudy:
    planned = rows(variance.design, variance.vary)
    there = [run_row(number, streams) for number, streams in enumerate(planned)]
    scores = {f"run-{number}": 80.0 + number % 4 for number in range(len(planned))}
    if how == "not scored":
        del scores[f"run-{place}"]
    else:
        there[place] = run_row(place, planned[place], how)
    return split(variance, there, scores)


def shown(found: AnyStudy) -> str:
    return markdown(of_study(CELL, found))


@pytest.mark.parametrize("how", ["failed", "not scored"])
def test_of_a_crossed_study_with_a_hole_the_part_without_is_split_and_what_is_left_out_is_named(
    how: str,
) -> None:
    found = with_hole(how)
    assert (found.n, found.used, found.left_out, found.missing) == (
        8,
        6,
        {"init": [1]},
        ["init 1, order 2"],
    )
    values = [80.0 + number % 4 for number in (0, 1, 2, 6, 7, 8)]
    smaller = rows(Design.CROSSED, {"init": [0, 2], "order": [0, 1, 2]})
    assert found.parts == components(
        Design.CROSSED, ["init", "order"], list(zip(smaller, values, strict=True))
    )
    assert (
        "Only a complete part of the design was analysed, without init 1. Missing: init 1, order 2."
        in shown(found)
    )
    assert "top1 at the last epoch of 6 of 8 runs, crossed" in shown(found)


@pytest.mark.parametrize(
    ("design", "how", "why"),
    [
        (
            "orthogonal",
            "failed",
            "1 of 9 runs are missing; the variance is split once they complete",
        ),
        ("orthogonal", "not scored", "1 of 9 runs completed without this metric"),
        ("crossed", "diverged", "1 of 9 runs diverged without a score"),
    ],
)
def test_a_study_whose_hole_cannot_be_left_out_is_not_split_and_names_it(
    design: str, how: str, why: str
) -> None:
    found = with_hole(how, changed(VARIANCE, design=Design(design)))
    assert found.parts is None and found.n == 8 and len(found.missing) == 1
    assert why in shown(found) and found.missing[0] in shown(found)


def test_an_arm_with_a_hole_goes_by_the_values_that_are_there() -> None:
    one = changed(
        VARIANCE,
        design=Design.ONE_AT_A_TIME,
        vary={"init": [0, 1, 2, 3], "order": [0, 1, 2]},
    )
    found = with_hole("failed", one, place=2)
    assert isinstance(found, ArmsStudy) and found.parts is not None
    assert found.left_out == {"init": [2]}
    assert [arm.n for arm in arms_of(found.parts)[:2]] == [3, 3]
    assert with_hole("failed", one, place=0).parts is None


@given(
    st.lists(st.integers(2, 4), min_size=2, max_size=3),
    st.sets(st.integers(0, 63), max_size=12),
    st.sampled_from([Design.CROSSED, Design.ONE_AT_A_TIME]),
)
def test_what_is_left_of_a_study_has_no_hole_and_two_values_of_each_stream(
    levels: list[int], holes: set[int], design: Design
) -> None:
    vary = {
        name: list(range(size))
        for name, size in zip(("init", "order", "mix"), levels, strict=False)
    }
    planned = rows(design, vary)
    done = [number not in holes for number in range(len(planned))]
    found = whole_part(design, list(vary), planned, done)
    if found is None:
        # One hole can be left out wherever there are three values, or it is not the base point.
        at_base = design is Design.ONE_AT_A_TIME and (0 in holes or min(levels) == 2)
        assert len(holes) > 1 or max(levels) == 2 or at_base
        return
    kept, left_out = found
    assert all(done[planned.index(dict(streams))] for streams in kept)
    for stream, values in vary.items():
        there = {streams[stream] for streams in kept} & set(values)
        assert len(there) >= 2 and there == set(values) - set(left_out.get(stream, ()))
    if design is Design.CROSSED:
        assert len(kept) == math.prod(len({streams[stream] for streams in kept}) for stream in vary)


def prints(**changed: str | None) -> dict[str, str | None]:
    return {**dict.fromkeys(STREAMS, "a"), **changed}


def test_one_fingerprint_for_each_value_is_wired() -> None:
    found = wiring([(seeds_of(0), prints()), (seeds_of(0) | {"init": 1}, prints(init="b"))])
    assert {one.stream: one.wired for one in found} == dict.fromkeys(STREAMS, True)


@pytest.mark.parametrize(
    ("runs", "stream"),
    [
        ([(seeds_of(0), prints()), (seeds_of(0) | {"order": 1}, prints())], "order"),
        (
            [(seeds_of(0), prints()), (seeds_of(0) | {"order": 1}, prints(order="b", init="b"))],
            "init",
        ),
    ],
)
def test_a_value_that_decides_nothing_of_its_own_is_told(runs: list[Any], stream: str) -> None:
    found = {one.stream: one.wired for one in wiring(runs)}
    assert [name for name, wired in found.items() if wired is False] == [stream]
    told = changed(split(VARIANCE, members(), SCORES), wiring=wiring(runs))
    assert f"WARNING: {stream} has" in markdown(of_study(CELL, told))


def test_a_stream_without_a_say_and_runs_that_told_nothing_are_no_fault() -> None:
    runs = [
        (seeds_of(0), prints(mix=None)),
        (seeds_of(0) | {"mix": 1}, prints(mix=None)),
        (seeds_of(1), {}),
    ]
    found = {one.stream: one for one in wiring(runs)}
    assert (found["mix"].wired, found["mix"].fingerprints, found["init"].wired) == (
        None,
        0,
        True,
    )

"""A study of streams: what is missing, and whether values and what they decided go together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.analysis.layout import markdown
from vtjobs.analysis.parts import of_study
from vtjobs.analysis.study import study, wiring
from vtjobs.db.queries import RunRow
from vtjobs.jobs.design import Design, rows
from vtjobs.jobs.spec import STREAMS, seed_label, seeds_of

VARIANCE: dict[str, Any] = {
    "design": "crossed", "vary": {"init": [0, 1, 2], "order": [0, 1, 2]}, "hold": {}, "ride": [], "repeat": 1,
}  # fmt: skip
CELL = {"backbone": "b", "dataset": "d", "head": "h", "recipe": "r", "axes": {}}


def run_row(number: int, streams: dict[str, int], state: str = "completed") -> RunRow:
    fields: dict[str, Any] = dict.fromkeys(RunRow.__slots__)
    seed = seed_label(streams)
    apart = {"seed": number, "streams": streams} if seed is None else {"seed": seed, "streams": None}
    return RunRow(**{**fields, **apart, "run_id": f"run-{number}", "state": state})


def members() -> list[RunRow]:
    planned = rows(Design.CROSSED, VARIANCE["vary"])
    return [run_row(number, streams) for number, streams in enumerate(planned)]


SCORES = {f"run-{number}": 80.0 + number % 4 for number in range(9)}


@given(st.permutations(range(9)))
def test_the_order_of_the_runs_changes_nothing(order: list[int]) -> None:
    there = members()
    assert study(VARIANCE, [there[place] for place in order], SCORES) == study(VARIANCE, there, SCORES)


def test_a_complete_study_is_split_and_shown() -> None:
    found = study(VARIANCE, members(), SCORES)
    assert (found["n"], found["planned"], found["missing"], found["why_not"]) == (9, 9, [], "")
    text = markdown(of_study(CELL, {**found, "metric": "top1", "wiring": []}))
    assert "| b | d | h | init |" in text and "interactions and hardware" in text
    assert "top1 of 9 runs, crossed: init (3), order (3)." in text


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("failed", "1 of its 9 runs are missing: it is split when all are in"),
        ("diverged", "1 of its 9 runs diverged, an outcome without a value"),
        ("not scored", "1 of its 9 runs have completed without this score"),
    ],
)
def test_a_study_with_a_hole_is_not_split_and_names_it(how: str, why: str) -> None:
    there, scores = members(), dict(SCORES)
    if how == "not scored":
        del scores["run-5"]
    else:
        there[5] = run_row(5, rows(Design.CROSSED, VARIANCE["vary"])[5], how)
    found = study(VARIANCE, there, scores)
    assert (found["parts"], found["missing"], found["n"]) == (None, ["init 1, order 2"], 8)
    text = markdown(of_study(CELL, {**found, "metric": "top1", "wiring": []}))
    assert why in text and "init 1, order 2" in text


def prints(**changed: str | None) -> dict[str, str | None]:
    return {**dict.fromkeys(STREAMS, "a"), **changed}


def test_one_fingerprint_for_each_value_is_wired() -> None:
    found = wiring([(seeds_of(0), prints()), (seeds_of(0) | {"init": 1}, prints(init="b"))])
    assert {one["stream"]: one["wired"] for one in found} == dict.fromkeys(STREAMS, True)


@pytest.mark.parametrize(
    ("runs", "stream"),
    [
        ([(seeds_of(0), prints()), (seeds_of(0) | {"order": 1}, prints())], "order"),
        ([(seeds_of(0), prints()), (seeds_of(0) | {"order": 1}, prints(order="b", init="b"))], "init"),
    ],
)
def test_a_value_that_decides_nothing_of_its_own_is_told(runs: list[Any], stream: str) -> None:
    found = {one["stream"]: one["wired"] for one in wiring(runs)}
    assert [name for name, wired in found.items() if wired is False] == [stream]
    shown = {**study(VARIANCE, members(), SCORES), "metric": "top1", "wiring": wiring(runs)}
    assert f"WARNING: {stream} has" in markdown(of_study(CELL, shown))


def test_a_stream_without_a_say_and_runs_that_told_nothing_are_no_fault() -> None:
    runs = [(seeds_of(0), prints(mix=None)), (seeds_of(0) | {"mix": 1}, prints(mix=None)), (seeds_of(1), {})]
    found = {one["stream"]: one for one in wiring(runs)}
    assert (found["mix"]["wired"], found["mix"]["fingerprints"], found["init"]["wired"]) == (None, 0, True)

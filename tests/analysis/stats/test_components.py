"""Variance components: against lme4's, against a fit by least squares, and their coverage."""

import math
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f as fisher

from vtjobs.analysis.stats.components import Components, Part, arms, components
from vtjobs.jobs.run.design import Design, rows

# Davies and Goldsmith 1972, section 6.6 (lme4's Penicillin): zones of inhibition in mm, six samples
# per plate.
PENICILLIN = """
27 23 26 23 23 21 27 23 26 23 23 21 25 21 25 24 24 20 26 23 25 23 23 20 25 22 26 22 23 20 24 22 25 23 22 19
24 20 23 21 22 19 26 22 26 24 24 21 24 21 24 22 22 20 24 21 24 23 22 19 26 23 26 24 24 21 25 22 26 24 24 20
26 24 26 24 25 22 26 23 26 23 23 20 26 23 25 24 24 22 25 22 25 23 23 20 25 21 24 23 23 20 25 22 24 23 23 19
24 21 23 21 21 19 26 23 26 24 24 21 25 21 24 22 22 18 25 22 25 22 22 20 24 21 24 22 24 19 24 21 24 22 21 18
"""
TWO = ["init", "order"]


def study(values: Any) -> list[tuple[dict[str, int], float]]:
    """Return a crossed study of init x order (x repeat) as runs."""
    table = numpy.asarray(values, dtype=float)
    table = table if table.ndim == 3 else table[:, :, None]
    return [
        ({"init": i, "order": j, "repeat": k}, float(table[i, j, k]))
        for i, j, k in numpy.ndindex(table.shape)
    ]


def parts(found: Components, what: str = "share") -> list[float]:
    return [getattr(one, what) for one in (*found.streams, found.interactions)]


def test_the_penicillin_assay_splits_as_lme4_splits_it() -> None:
    table = numpy.array(PENICILLIN.split(), dtype=float).reshape(24, 6)
    found = components(Design.CROSSED, TWO, study(table))
    stds = [math.sqrt(variance) for variance in parts(found, "variance")]
    # lmer(diameter ~ 1 + (1 | plate) + (1 | sample)), REML: 0.8467, 1.9316, 0.5499.
    assert stds == pytest.approx([0.8467, 1.9316, 0.5499], abs=6e-5)
    assert sum(parts(found)) == pytest.approx(1)


def residual(design: Any, values: Any) -> float:
    columns = numpy.column_stack([numpy.ones(len(values)), *design])
    fitted = columns @ numpy.linalg.lstsq(columns, values, rcond=None)[0]
    return float(((values - fitted) ** 2).sum())


def dummies(levels: list[int]) -> list[Any]:
    return [
        numpy.array([level == wanted for level in levels], dtype=float)
        for wanted in sorted(set(levels))
    ]


@pytest.mark.parametrize(
    ("design", "streams", "repeat"),
    [
        (Design.CROSSED, 2, 1),
        (Design.CROSSED, 2, 3),
        (Design.ORTHOGONAL, 4, 1),
        (Design.ORTHOGONAL, 3, 2),
    ],
)
def test_mean_squares_are_those_of_a_fit_by_least_squares(
    design: Design, streams: int, repeat: int
) -> None:
    names = ["init", "order", "augment", "drop"][:streams]
    planned = rows(design, dict.fromkeys(names, range(5)), repeat=repeat)
    values = numpy.random.default_rng(streams).normal(80.0, 1.0, len(planned))
    found = components(design, names, list(zip(planned, values.tolist(), strict=True)))
    columns = {name: dummies([row[name] for row in planned]) for name in names}
    full = residual([column for own in columns.values() for column in own], values)
    for one in found.streams:
        without = residual(
            [column for name in names if name != one.stream for column in columns[name]], values
        )
        assert one.ms == pytest.approx((without - full) / 4, rel=1e-9)
    places = dummies([hash(tuple(row[name] for name in names)) for row in planned])
    within = residual(places, values) if repeat > 1 else 0.0
    rest = found.interactions
    assert rest.ms is not None and rest.df is not None
    assert rest.ms == pytest.approx((full - within) / rest.df, rel=1e-9)
    assert rest.df == len(places) - 1 - 4 * streams
    if repeat > 1:
        assert found.hardware is not None
        assert found.hardware.ms == pytest.approx(within / (len(values) - len(places)), rel=1e-9)
    first = found.streams[0]
    assert first.ms is not None
    assert first.p == pytest.approx(float(fisher.sf(first.ms / rest.ms, 4, rest.df)))


def crossed_columns(planned: list[dict[str, int]], term: tuple[str, ...]) -> list[Any]:
    return dummies([hash(tuple(row[name] for name in term)) for row in planned])


@pytest.mark.parametrize("repeat", [1, 2])
def test_of_three_crossed_streams_each_interaction_is_told_apart(repeat: int) -> None:
    names = ("init", "order", "augment")
    planned = rows(
        Design.CROSSED, {"init": range(4), "order": range(3), "augment": range(2)}, repeat=repeat
    )
    values = numpy.random.default_rng(repeat).normal(80.0, 1.0, len(planned))
    found = components(Design.CROSSED, names, list(zip(planned, values.tolist(), strict=True)))
    squares: dict[tuple[str, ...], Part] = {(one.stream,): one for one in found.streams}
    squares |= {tuple(term.streams): term for term in found.terms}
    assert len(squares) == 7
    for term, one in squares.items():
        below = [
            column for other in squares if set(other) < set(term) for column in crossed_columns(planned, other)
        ]  # fmt: skip
        left = residual(below, values) - residual([*below, *crossed_columns(planned, term)], values)
        assert one.df is not None
        assert one.ms == pytest.approx(left / one.df, rel=1e-9)
    assert [one.df for one in squares.values()] == [3, 2, 1, 6, 3, 2, 6]
    parts = [*squares.values(), *([found.hardware] if found.hardware else [])]
    assert sum(one.share or 0.0 for one in parts) == pytest.approx(1)


def test_components_of_three_crossed_streams_are_unbiased() -> None:
    draw, names, shape = numpy.random.default_rng(5), ("init", "order", "augment"), (4, 3, 3)
    true = {
        ("init",): 2.0,
        ("order",): 1.0,
        ("init", "order"): 0.5,
        ("init", "augment"): 1.5,
        names: 0.8,
    }
    planned = rows(
        Design.CROSSED, {name: range(size) for name, size in zip(names, shape, strict=True)}
    )
    seen: dict[tuple[str, ...], list[float]] = {}
    for _ in range(300):
        values = numpy.zeros(shape)
        for streams, variance in true.items():
            own = [size if name in streams else 1 for name, size in zip(names, shape, strict=True)]
            values = values + draw.normal(0, math.sqrt(variance), own)
        found = components(
            Design.CROSSED, names, list(zip(planned, values.ravel().tolist(), strict=True))
        )
        for one in found.streams:
            seen.setdefault((one.stream,), []).append(one.variance)
        for term in found.terms:
            seen.setdefault(tuple(term.streams), []).append(term.variance)
    for names_of, variances in seen.items():
        error = numpy.std(variances) / math.sqrt(len(variances))
        assert numpy.mean(variances) == pytest.approx(true.get(names_of, 0.0), abs=4 * error)


@given(st.integers(0, 1000), st.floats(-5, 5), st.floats(0.1, 10))
@settings(max_examples=25)
def test_a_shift_changes_nothing_and_a_scale_no_share(
    seed: int, shift: float, scale: float
) -> None:
    table = numpy.random.default_rng(seed).normal(0.0, 1.0, (4, 3))
    one, other = (
        components(Design.CROSSED, TWO, study(values)) for values in (table, shift + scale * table)
    )
    assert parts(other) == pytest.approx(parts(one), abs=1e-6)
    assert other.variance == pytest.approx(scale**2 * one.variance, rel=1e-6)


def test_the_order_of_runs_changes_no_number() -> None:
    runs = study(numpy.random.default_rng(0).normal(0.0, 1.0, (3, 4)))
    assert components(Design.CROSSED, TWO, runs[::-1]) == components(Design.CROSSED, TWO, runs)


def test_runs_that_are_all_equal_have_no_shares_and_no_test() -> None:
    found = components(Design.CROSSED, TWO, study(numpy.full((3, 3), 7.0)))
    assert found.variance == 0.0 and parts(found) == [None, None, None]
    assert found.streams[0].p is None


def test_a_negative_estimate_is_shown_and_counts_as_none() -> None:
    # Values of init differ less than their rows do within.
    found = components(
        Design.CROSSED, TWO, study([[0.0, 3.0, 1.0], [3.0, 1.0, 0.1], [1.0, 0.0, 3.0]])
    )
    first = found.streams[0]
    assert first.variance < 0 and first.share == 0.0


@pytest.mark.parametrize(
    ("init", "order", "rest"), [(0.5, 0.25, 0.25), (0.05, 0.05, 0.9), (0.8, 0.1, 0.1)]
)
def test_intervals_of_shares_cover_the_true_share_about_as_often_as_they_say(
    init: float, order: float, rest: float
) -> None:
    draw = numpy.random.default_rng(3)
    times, covered, total = 400, 0, 0
    for _ in range(times):
        table = (
            draw.normal(0, math.sqrt(init), (5, 1)) + draw.normal(0, math.sqrt(order), (1, 5))
            + draw.normal(0, math.sqrt(rest), (5, 5))
        )  # fmt: skip
        one = components(Design.CROSSED, TWO, study(table)).streams[0]
        assert one.share_interval is not None and one.total_share_interval is not None
        covered += one.share_interval[0] <= init <= one.share_interval[1]
        total += one.total_share_interval[0] <= init + rest <= one.total_share_interval[1]
    # Generalised intervals hold their level or a little more; four standard errors of 400
    # simulations are 0.044.
    assert covered / times >= 0.906 and total / times >= 0.906


def test_arms_of_one_stream_at_a_time_are_compared_with_all_moving_together() -> None:
    planned = rows(Design.ONE_AT_A_TIME, {"init": range(4), "order": range(3)}, repeat=2)
    values = [80.0, 80.5, 81.0, 82.0, 79.0, 80.2, 80.4, 80.0, 83.0, 78.0]
    found = arms(TWO, list(zip(planned, values, strict=True)))
    init, order = found.streams
    assert init.std == pytest.approx(numpy.std([80.0, 81.0, 82.0, 79.0], ddof=1))
    assert order.std == pytest.approx(numpy.std([80.0, 80.2, 80.4], ddof=1))
    whole = numpy.var([80.0, 83.0, 78.0], ddof=1)
    assert init.ratio == pytest.approx(numpy.var([80.0, 81.0, 82.0, 79.0], ddof=1) / whole)
    assert init.ratio is not None and init.ratio_interval is not None
    low, high = init.ratio_interval
    assert low == pytest.approx(init.ratio / float(fisher.ppf(0.975, 3, 2)))
    assert high == pytest.approx(init.ratio * float(fisher.ppf(0.975, 2, 3)))
    assert found.repeat is not None
    assert found.repeat.std == pytest.approx(numpy.std([80.0, 80.5], ddof=1))

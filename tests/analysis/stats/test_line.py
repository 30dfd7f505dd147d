"""A straight line through points."""

import numpy
import pytest
from scipy import stats

from vtjobs.analysis.stats.line import line_through


@pytest.mark.parametrize("n", [3, 4, 30])
def test_the_line_is_that_of_scipy(n: int) -> None:
    draw = numpy.random.default_rng(n)
    x = draw.normal(75, 5, n)
    y = 1.1 * x - 15 + draw.normal(0, 1, n)
    line, theirs = line_through(x.tolist(), y.tolist()), stats.linregress(x, y)
    assert line is not None
    half = stats.t.ppf(0.975, n - 2) * theirs.stderr
    assert line.slope == pytest.approx(theirs.slope)
    assert line.intercept == pytest.approx(theirs.intercept)
    assert line.slope_interval == pytest.approx([theirs.slope - half, theirs.slope + half])
    assert line.r2 == pytest.approx(theirs.rvalue**2)


def test_points_on_a_line_lie_on_it() -> None:
    line = line_through([1.0, 2.0, 4.0], [3.0, 5.0, 9.0])
    assert line is not None
    assert (line.slope, line.at(10.0), line.r2) == pytest.approx((2.0, 21.0, 1.0))
    assert line.slope_interval == pytest.approx([2.0, 2.0])


def test_a_level_line_explains_nothing() -> None:
    line = line_through([1.0, 2.0, 4.0], [3.0, 3.0, 3.0])
    assert line is not None and (line.slope, line.r2) == (0.0, None)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1.0, 2.0], [1.0, 2.0]),
        ([5.0, 5.0, 5.0], [1.0, 2.0, 3.0]),
        ([0.1 + 0.2, 0.3, 0.3], [1.0, 2.0, 3.0]),
    ],
)
def test_no_line_goes_through_too_few_points_or_one_x(x: list[float], y: list[float]) -> None:
    assert line_through(x, y) is None

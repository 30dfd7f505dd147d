"""One difference over datasets: published examples, and how often its intervals hold."""

import statistics

import numpy
import pytest

from vtjobs.analysis.stats.pooled import (
    Part,
    between_datasets,
    interquartile,
    over_datasets_like_these,
    over_these,
    prediction,
)

# Batches of a dyestuff (Davies 1947), as lme4's `Dyestuff` has them.
DYESTUFF = [
    [1545, 1440, 1440, 1520, 1580],
    [1540, 1555, 1490, 1560, 1495],
    [1595, 1550, 1605, 1510, 1560],
    [1445, 1440, 1595, 1465, 1545],
    [1595, 1630, 1515, 1635, 1625],
    [1520, 1455, 1450, 1480, 1445],
]
# Thirteen trials of the BCG vaccine, log relative risk and its variance: metafor's `dat.bcg`.
BCG = [
    (-0.8893, 0.3256), (-1.5854, 0.1946), (-1.3481, 0.4154), (-1.4416, 0.0200), (-0.2175, 0.0512),
    (-0.7861, 0.0069), (-1.6209, 0.2230), (0.0120, 0.0040), (-0.4694, 0.0564), (-1.3713, 0.0730),
    (-0.3394, 0.0124), (0.4459, 0.5325), (-0.0173, 0.0714),
]  # fmt: skip


def _parts(batches: list[list[int]]) -> list[Part]:
    """Return means, with the error that all batches together give."""
    residual = statistics.fmean(statistics.variance(batch) for batch in batches)
    return [Part(statistics.fmean(batch), (residual / 5) ** 0.5, 24) for batch in batches]


def test_a_balanced_random_factor_is_that_of_lme4() -> None:
    # lmer(Yield ~ 1 + (1 | Batch)): Batch 1764, intercept 1527.50 with standard error 19.38.
    parts = _parts(DYESTUFF)
    found = over_datasets_like_these(parts)
    assert between_datasets(parts) ** 2 == pytest.approx(1764.05, abs=0.01)
    assert (found.difference, found.error) == pytest.approx((1527.5, 19.3834), abs=1e-4)
    assert found.df == 5


def test_an_unbalanced_random_factor_is_that_of_metafor() -> None:
    # rma(yi, vi, data = dat.bcg, method = "REML"): tau^2 = 0.3132.
    parts = [Part(effect, square**0.5, 100) for effect, square in BCG]
    assert between_datasets(parts) ** 2 == pytest.approx(0.3132, abs=1e-4)


def test_equal_parts_have_the_error_of_one_of_them_over_the_root_of_their_number() -> None:
    found = over_these([Part(difference, 0.6, 8) for difference in (0.0, 1.0, 2.0, 3.0)])
    assert (found.difference, found.error, found.df) == pytest.approx((1.5, 0.3, 32))


def test_what_varies_over_datasets_widens_one_interval_and_not_the_other() -> None:
    alike = [Part(difference, 0.2, 8) for difference in (1.0, 1.01, 0.99, 1.0)]
    apart = [Part(difference, 0.2, 8) for difference in (3.0, -1.0, 2.0, 0.0)]
    assert over_these(alike).error == over_these(apart).error
    assert _error(over_datasets_like_these(apart)) > 10 * _error(over_datasets_like_these(alike))
    assert between_datasets(alike) == 0.0 and between_datasets(apart) > 1.5


def _error(found: object) -> float:
    error = getattr(found, "error")  # noqa: B009
    assert isinstance(error, float)
    return error


def test_two_datasets_say_nothing_of_others() -> None:
    parts = [Part(1.0, 0.2, 8), Part(2.0, 0.2, 8)]
    assert over_datasets_like_these(parts).why_not == "needs 3 datasets"
    assert prediction(parts, 0.5) is None


@pytest.mark.parametrize("datasets", [3, 7])
def test_intervals_hold_as_often_as_they_say_with_three_seeds_and_unequal_spread(
    datasets: int,
) -> None:
    draw = numpy.random.default_rng(datasets)
    stds = numpy.linspace(0.2, 2.0, datasets)
    draws, fixed, random, new = 600, 0, 0, 0
    for _ in range(draws):
        true = draw.normal(0.5, 1.0, datasets)
        parts = []
        for effect, std in zip(true, stds, strict=True):
            own, other = draw.normal(effect, std, 3), draw.normal(0.0, std, 3)
            squares = own.var(ddof=1) / 3, other.var(ddof=1) / 3
            df = sum(squares) ** 2 / sum(square**2 / 2 for square in squares)
            parts.append(Part(float(own.mean() - other.mean()), sum(squares) ** 0.5, float(df)))
        these, like = over_these(parts).interval, over_datasets_like_these(parts).interval
        one_more = prediction(parts, between_datasets(parts))
        assert these and like and one_more
        fixed += these.low <= true.mean() <= these.high
        random += like.low <= 0.5 <= like.high
        new += one_more.low <= draw.normal(0.5, 1.0) <= one_more.high
    # Four standard errors of 600 draws below 95 %, and as many above for those that are exact.
    assert fixed / draws > 0.914
    assert random / draws == pytest.approx(0.95, abs=0.036)
    assert new / draws > 0.9


def test_the_interquartile_mean_leaves_out_a_dataset_that_stands_apart() -> None:
    draw = numpy.random.default_rng(0)
    sides = {
        f"d{k}": (draw.normal(k + gain, 0.1, 10).tolist(), draw.normal(k, 0.1, 10).tolist())
        for k, gain in enumerate((1.0, 1.0, 1.0, 1.0, 50.0))
    }
    found, interval = interquartile(sides)
    assert found == pytest.approx(1.0, abs=0.1)
    assert interval is not None and interval.low < found < interval.high < 2.0


def test_few_seeds_have_no_bootstrap() -> None:
    assert interquartile({"a": ([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])})[1] is None

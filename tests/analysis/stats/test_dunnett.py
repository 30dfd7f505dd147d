"""Many heads against one baseline: Dunnett's table, and how often it is wrong."""

import numpy
import pytest
from scipy.stats import norm

from vtjobs.analysis.stats.difference import holm, welch
from vtjobs.analysis.stats.dunnett import Sample, step_down

# With so many seeds the tables' last row holds.
MANY = 100_000


# Dunnett (1964), table II: two-sided, α = 0.05, infinite degrees of freedom.
@pytest.mark.parametrize(("heads", "critical"), [(2, 2.21), (3, 2.35), (4, 2.44), (5, 2.51)])
def test_the_first_step_is_that_of_dunnetts_table(heads: int, critical: float) -> None:
    samples = [(Sample(f"head{k}", 1.0, MANY), Sample("base", 1.0, MANY)) for k in range(heads)]
    adjusted = step_down([2 * float(norm.sf(critical)), *[0.9] * (heads - 1)], samples)
    assert adjusted[0] == pytest.approx(0.05, abs=0.004)


def test_one_comparison_is_not_adjusted() -> None:
    samples = [(Sample("head", 1.0, 5), Sample("base", 1.0, 5))]
    assert step_down([0.03], samples) == [0.03]


def test_it_is_never_above_holm_and_keeps_the_order() -> None:
    ps = [0.001, 0.04, None, 0.02]
    samples = [(Sample(f"head{k}", 1.0, 5), Sample("base", 1.0, 5)) for k in range(4)]
    adjusted, bound = step_down(ps, samples), holm(ps)
    assert adjusted[2] is None
    for one, most in zip(adjusted, bound, strict=True):
        assert one is None or (most is not None and one <= most)
    assert adjusted[0] < adjusted[3] <= adjusted[1]  # type: ignore[operator]


def test_comparisons_that_are_not_shown_count_as_bonferroni_counts_them() -> None:
    samples = [(Sample(f"head{k}", 1.0, 5), Sample("base", 1.0, 5)) for k in range(2)]
    shown, whole = (step_down([0.01, 0.5], samples, m=m)[0] for m in (2, 6))
    assert shown is not None and whole == pytest.approx(shown + 4 * 0.01)


@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_heads_that_do_nothing_are_found_no_more_often_than_alpha(
    spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vtjobs.analysis.stats import dunnett

    monkeypatch.setattr(dunnett, "DRAWS", 2000)
    draw = numpy.random.default_rng(3)
    wrong, draws = 0, 300
    for _ in range(draws):
        base = draw.normal(0.0, spread, 4)
        heads = draw.normal(size=(4, 4))
        ps = [welch(head.tolist(), base.tolist()).p for head in heads]
        known = Sample("base", float(base.std(ddof=1)), 4)
        samples = [
            (Sample(f"head{k}", float(head.std(ddof=1)), 4), known) for k, head in enumerate(heads)
        ]
        wrong += min(p for p in step_down(ps, samples) if p is not None) <= 0.05
    # Four standard errors above 5 %.
    assert wrong / draws < 0.10

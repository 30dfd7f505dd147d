"""The word that a comparison ends in, and what stands behind it. Pure."""

from collections.abc import Sequence

from ...jobs.run.comparing import Family, Test
from ..stats.difference import Difference
from ..stats.sample_size import POWER, detectable, power, seeds_for, upper_std
from ..stats.verdict import Verdict
from .interim import Seen, shares
from .plan import ComparisonPlan


def judged(
    seen: Seen, tie: float | None, plan: ComparisonPlan, *, lost: Sequence[int] = ()
) -> tuple[Verdict, str]:
    """Return the verdict and its detail, as far as the plan lets it be one.

    Args:
        seen: what was found.
        tie: p of the test for equivalence, if there is a margin.
        plan: how it was compared.
        lost: seeds that have no value and get none by themselves.
    """
    if seen.look is None and seen.next_look is not None:
        first = f"the first interim analysis is at {seen.next_look} seeds"
        return Verdict.NOT_TESTABLE, _joined(first, _to_replace(lost))
    word, detail = _verdict(seen, tie, plan)
    if plan.family is Family.SCREEN and word is Verdict.SEPARABLE:
        # Of many that pass a screen a share α is expected to be luck.
        word, detail = Verdict.INCONCLUSIVE, "passed the screen: confirm with new seeds"
    if plan.exploratory and word in (Verdict.SEPARABLE, Verdict.TIE):
        detail = _joined("exploratory", detail)
    if seen.look is not None:
        is_open = seen.next_look and word not in (Verdict.SEPARABLE, Verdict.NOT_TESTABLE)
        ahead = f", the next is at {seen.next_look}" if is_open else ""
        which = "final" if seen.next_look is None else "interim"
        at = f"{which} analysis at {seen.look} seeds{ahead}"
        detail = _joined(detail, at, _to_replace(lost) if is_open else "")
    return word, detail


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _to_replace(lost: Sequence[int]) -> str:
    if not lost:
        return ""
    named = ", ".join(map(str, lost))
    if len(lost) > 1:
        return f"seeds {named} failed: add a seed for each, or retry their runs"
    return f"seed {named} failed: add a seed, or retry its run"


def _verdict(seen: Seen, tie: float | None, plan: ComparisonPlan) -> tuple[Verdict, str]:
    """Return the verdict and what stands behind it.

    A tie and a separable difference can hold at once: the difference is there, and too small to
    matter.
    """
    if seen.adjusted is None:
        return Verdict.NOT_TESTABLE, seen.found.why_not
    equal = tie is not None and tie <= seen.alpha
    if seen.adjusted <= seen.alpha:
        small = "significant, but equivalent within the margin" if equal else ""
        return Verdict.SEPARABLE, _joined(small, _of_two(seen.found, plan))
    if equal:
        return Verdict.TIE, "equivalent within the margin"
    return Verdict.INCONCLUSIVE, _needed(seen, plan)


def _of_two(found: Difference, plan: ComparisonPlan) -> str:
    """Say what Welch's test costs with two seeds on one side and more on the other.

    Simulated: 6 to 12 % of false positives at α = 0.05, where the smaller side has the larger
    deviation.
    """
    least, most = sorted((found.n, found.n_baseline))
    unequal = plan.test is Test.WELCH and not plan.anytime and least == 2 < most
    return "two seeds on one side: the error rate may be twice α" if unequal else ""


def _needed(seen: Seen, plan: ComparisonPlan) -> str:
    """Say what so many seeds can find, or how many more the declared effect needs.

    At the α that the strictest step of Holm's correction leaves to a comparison.
    """
    found = seen.found
    if plan.is_pooled:
        return _excluded(found, plan.min_effect, f"{found.n} datasets") if plan.min_effect else ""
    assert found.std is not None and found.df is not None
    std = upper_std(found.std, found.df)
    if plan.looks:
        return _at_looks(seen, plan, std)
    if plan.anytime and plan.min_effect is None:
        return "add seeds and compare again"
    n, pairs, alpha = min(found.n, found.n_baseline), plan.test is Test.PAIRED, seen.alpha / seen.m
    if plan.min_effect is None:
        smallest = detectable(n, alpha=alpha, pairs=pairs) * std
        return f"{n} seeds can detect a difference of {smallest:.2f} or more (80 % power)"
    needed = seeds_for(plan.min_effect / std, alpha=alpha, pairs=pairs, anytime=plan.anytime)
    if needed is None:
        return f"no feasible number of seeds detects a difference of {plan.min_effect:g}"
    if needed <= n:
        return _excluded(found, plan.min_effect, f"{n} seeds")
    target = f"a difference of {plan.min_effect:g} (80 % power)"
    return f"needs about {needed - n} more seeds to detect {target}"


def _at_looks(seen: Seen, plan: ComparisonPlan, std: float) -> str:
    """Say what the looks that are still to come can find."""
    pairs = plan.test is Test.PAIRED
    spent = zip(plan.looks, shares(plan.alpha, plan.looks), strict=True)
    ahead = [(size, alpha / seen.m) for size, alpha in spent if size >= (seen.next_look or size)]
    if seen.next_look is None:
        seeds = f"{seen.look} seeds"
        return _excluded(seen.found, plan.min_effect, seeds) if plan.min_effect else ""
    last, alpha = ahead[-1]
    if plan.min_effect is None:
        smallest = detectable(last, alpha=alpha, pairs=pairs) * std
        return f"{last} seeds can detect a difference of {smallest:.2f} or more (80 % power)"
    effect = plan.min_effect / std
    target = f"a difference of {plan.min_effect:g}"
    for size, alpha in ahead:
        if power(effect, size, alpha=alpha, pairs=pairs) >= POWER:
            return f"{size} seeds detect {target} (80 % power)"
    most = power(effect, last, alpha=alpha, pairs=pairs)
    return f"the last analysis, at {last} seeds, detects {target} with {100 * most:.0f} % power"


def _excluded(found: Difference, effect: float, sample: str) -> str:
    """Say whether the interval excludes an effect: not to have seen it does not.

    With 80 % power, one of five comparisons in which the effect is there does not see it.
    """
    assert found.interval is not None
    if max(abs(found.interval.low), abs(found.interval.high)) < effect:
        return f"the interval excludes a difference of {effect:g}"
    return f"a difference of {effect:g} is neither shown nor excluded, as may be with {sample}"

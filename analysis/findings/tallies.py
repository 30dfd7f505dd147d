"""In how many of its comparisons a head is better, and in how many significantly so. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...jobs.documents import Document
from ..stats.verdict import Verdict

if TYPE_CHECKING:
    from .comparisons import Comparison


class Tally(Document, frozen=True, kw_only=True):
    """What became of one head's comparisons."""

    head: str
    baseline_head: str
    """The head that it is compared with."""
    comparisons: int
    """How many have a difference, over backbones, datasets, recipes and further settings."""
    without_difference: int
    """How many have none yet: a side has no value, or what was declared is not due."""
    backbones: int
    """Backbones that those with a difference are of."""
    datasets: int
    """Datasets that they are of."""
    better: int
    """Those in which the head's mean is the better one."""
    worse: int
    """Those in which the baseline's mean is."""
    significantly_better: int
    """Those of `better` whose difference is significant."""
    significantly_worse: int
    """Those of `worse` whose difference is significant."""


def tallies(comparisons: "Sequence[Comparison]") -> list[Tally]:
    """Count the comparisons of each head with a baseline that has more than one, in their order.

    The signs are a description, as in the claim that a loss helps every backbone: comparisons that
    share data are not independent, so no test rests on their number.
    """
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for one in comparisons:
        groups.setdefault((one.head, one.baseline_head), []).append(one)
    return [_tally(*names, group) for names, group in groups.items() if len(group) > 1]


def _tally(head: str, baseline_head: str, group: "Sequence[Comparison]") -> Tally:
    known = [one for one in group if one.difference is not None]
    better = [one for one in known if _gain(one) > 0]
    worse = [one for one in known if _gain(one) < 0]
    return Tally(
        head=head,
        baseline_head=baseline_head,
        comparisons=len(known),
        without_difference=len(group) - len(known),
        backbones=len({one.backbone for one in known}),
        datasets=len({one.dataset for one in known}),
        better=len(better),
        worse=len(worse),
        significantly_better=sum(one.verdict is Verdict.SEPARABLE for one in better),
        significantly_worse=sum(one.verdict is Verdict.SEPARABLE for one in worse),
    )


def _gain(one: "Comparison") -> float:
    """Return the difference, positive where it is an improvement."""
    difference = one.difference or 0.0
    return -difference if one.better == "min" else difference

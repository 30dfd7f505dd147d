"""What more seeds of ours would show beside a printed number, as a sentence."""

from ...jobs.units import plural
from ..stats.sample_size import MOST_SEEDS
from ..stats.tie import Fixed, least_margin, seeds_for_tie


def what_helps(case: Fixed, margin: float, *, alpha: float) -> str:
    """Say how many more seeds show a tie within the margin, or which margin any number can show.

    Args:
        case: a difference that is neither significant nor a tie.
        margin: in points.
        alpha: of the test.
    """
    least = least_margin(case, alpha=alpha)
    if least >= margin:
        return f"no number of seeds shows a tie within ±{margin:g}: ±{least:.2f} at best"
    needed = seeds_for_tie(case, margin, alpha=alpha)
    if needed is None:
        return f"a tie within ±{margin:g} needs more than {MOST_SEEDS:,} seeds"
    more = plural(max(1, needed - case.n), "more seed")
    return f"a tie within ±{margin:g} needs about {more}, if the difference stays as it is"

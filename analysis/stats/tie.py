"""What more seeds of ours can show about a mean that others have printed: their side is fixed.

The test is `equivalence`, two one-sided tests against ± a margin. Its error has two parts: ours,
which falls with our seeds, and theirs, which no seed of ours changes.
"""

import math

from ...jobs.values import Value
from .difference import ALPHA
from .distributions import t_quantile
from .sample_size import MOST_SEEDS, POWER


class Fixed(Value, frozen=True, kw_only=True):
    """A printed mean beside seeds of ours that keep their mean and spread."""

    gap: float
    """Our mean minus the printed one, in the metric's unit."""
    n: int
    """Our seeds at present."""
    std: float
    """Over our seeds, above 0."""
    std_printed: float | None = None
    """None: a single number is printed, which is one more draw with our spread."""
    n_printed: int = 1

    def error(self, n: float) -> float:
        """Return the standard error of the difference with n seeds of ours, at least 2 or inf."""
        return math.hypot(self.std / math.sqrt(n), self._error_of_theirs)

    def slope(self, n: float) -> float:
        """Return by how much the error grows with our deviation."""
        if self.std_printed is None:
            return math.sqrt(1 + 1 / n)
        return self.std / n / self.error(n)

    def df(self, n: float) -> float:
        """Return the degrees of freedom: Welch's, or those of our seeds."""
        if self.std_printed is None:
            return n - 1
        theirs = self._error_of_theirs**2
        if math.isinf(n):
            return self.n_printed - 1 if theirs else math.inf
        own = self.std**2 / n
        return (own + theirs) ** 2 / (own**2 / (n - 1) + theirs**2 / (self.n_printed - 1))

    @property
    def _error_of_theirs(self) -> float:
        if self.std_printed is None:
            return self.std
        return self.std_printed / math.sqrt(self.n_printed)


def least_margin(case: Fixed, *, n: float = math.inf, alpha: float = ALPHA) -> float:
    """Return the smallest margin within which n seeds show a tie; of inf, that any number does."""
    return abs(case.gap) + t_quantile(1 - alpha, case.df(n)) * case.error(n)


def seeds_for_tie(
    case: Fixed, margin: float, *, alpha: float = ALPHA, wanted: float = POWER
) -> int | None:
    """Return how many seeds of ours show a tie so often; None where no number does.

    New seeds move our mean, by its standard error; the printed mean stays where it is.

    Args:
        case: what is known.
        margin: in the metric's unit, above 0; what counts as no difference.
        alpha: size of the test.
        wanted: its power, if the difference is as it is seen.
    """

    def enough(n: int) -> bool:
        critical = t_quantile(1 - alpha, case.df(n))
        # New seeds have another mean, and another deviation, which moves the error.
        of_mean = case.std / math.sqrt(n)
        of_error = critical * case.slope(n) * case.std / math.sqrt(2 * (n - 1))
        room = t_quantile(wanted, n - 1) * math.hypot(of_mean, of_error)
        return margin - abs(case.gap) - critical * case.error(n) >= room

    if least_margin(case, alpha=alpha) >= margin or not enough(MOST_SEEDS):
        return None
    low, high = 2 if case.std_printed is not None else 3, MOST_SEEDS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low

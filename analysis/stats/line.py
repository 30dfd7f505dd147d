"""A straight line through points, by least squares."""

import math
from collections.abc import Sequence

from ...jobs.documents import Document
from .distributions import t_quantile


class Line(Document, frozen=True, kw_only=True):
    """The line of least squares, y = slope · x + intercept."""

    slope: float
    """By how much y grows with x."""
    intercept: float
    """y where x is 0."""
    slope_interval: list[float]
    """95 % confidence interval of the slope."""
    r2: float | None
    """Share of the variance of y that it explains; None where y does not vary."""

    def at(self, x: float) -> float:
        """Return its y."""
        return self.slope * x + self.intercept


def line_through(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """Return the line of least squares of y on x.

    None for fewer than three points, as two are always on a line, and where no x differs.

    Args:
        x: as many as `y`.
        y: what the line predicts.
    """
    n = len(x)
    if n < 3:
        return None
    mean_x, mean_y = math.fsum(x) / n, math.fsum(y) / n
    spread = math.fsum((one - mean_x) ** 2 for one in x)
    # What rounding leaves of equal values is no spread.
    if spread <= n * (1e-12 * max(map(abs, x))) ** 2:
        return None
    together = math.fsum((one - mean_x) * (two - mean_y) for one, two in zip(x, y, strict=True))
    slope = together / spread
    total = math.fsum((two - mean_y) ** 2 for two in y)
    left = math.fsum(
        (two - mean_y - slope * (one - mean_x)) ** 2 for one, two in zip(x, y, strict=True)
    )
    half = t_quantile(0.975, n - 2) * math.sqrt(left / (n - 2) / spread)
    return Line(
        slope=slope,
        intercept=mean_y - slope * mean_x,
        slope_interval=[slope - half, slope + half],
        r2=None if total == 0 else 1 - left / total,
    )

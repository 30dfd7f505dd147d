"""Mean and standard deviation of a cell's values, computed once for all tables and tests."""

import statistics
from functools import lru_cache


# A report needs them for each cell, and again in each of its comparisons. The sums are exact: that
# takes longer than the tests.
@lru_cache(maxsize=1 << 13)
def moments(values: tuple[float, ...]) -> tuple[float, float]:
    """Return mean and sample standard deviation (ddof 1); 0 of a single value.

    Args:
        values: at least one.
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0

"""Mean and standard deviation of a cell's values, computed once for all tables and tests."""

import math
import statistics
from functools import lru_cache

# Numbers whose squares a float holds in full.
_SQUARED = (1e-100, 1e100)


# A report needs them for each cell, and again in each of its comparisons.
@lru_cache(maxsize=1 << 13)
def moments(values: tuple[float, ...]) -> tuple[float, float]:
    """Return mean and sample standard deviation (ddof 1); 0 of a single value.

    Args:
        values: at least one.
    """
    mean = statistics.fmean(values)
    if len(values) == 1:
        return mean, 0.0
    # `statistics.stdev` adds up fractions, which takes a tenth of a report. Measured from the least
    # value, scores keep their digits, and their order changes nothing.
    least = min(values)
    away = [value - least for value in values]
    if not _SQUARED[0] < max(away) < _SQUARED[1]:
        return mean, statistics.stdev(values)
    centre = math.fsum(away) / len(away)
    squares = math.fsum((each - centre) ** 2 for each in away)
    return mean, math.sqrt(squares / (len(values) - 1))

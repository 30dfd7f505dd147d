"""Student's t and χ² from `scipy.special`, as `scipy.stats` has them.

`scipy.stats` takes half a second to import, and checks its arguments at each call.
"""

from scipy import special


def t_upper(t: float, df: float) -> float:
    """Return the probability of a larger value than t."""
    return float(special.stdtr(df, -t))


def t_lower(t: float, df: float) -> float:
    """Return the probability of a smaller value than t."""
    return float(special.stdtr(df, t))


def t_quantile(probability: float, df: float) -> float:
    """Return the value below which t lies with this probability."""
    return float(special.stdtrit(df, probability))


def chi2_quantile(probability: float, df: float) -> float:
    """Return the value below which χ² lies with this probability."""
    return 2 * float(special.gammaincinv(df / 2, probability))

"""Student's t from `scipy.special`: what `scipy.stats` calls itself, without half a second's import
and without the checks of its arguments at each call.
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

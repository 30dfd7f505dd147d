"""The verdicts that a comparison can end with."""

from enum import StrEnum


class Verdict(StrEnum):
    """What the seeds say about a difference; the values stand in JSON, CSV and tables."""

    SEPARABLE = "separable"
    """The difference is significant."""
    TIE = "tie"
    """The difference is shown to lie within the margin."""
    INCONCLUSIVE = "inconclusive"
    """Neither is shown."""
    NOT_TESTABLE = "not testable"
    """The values allow no test."""

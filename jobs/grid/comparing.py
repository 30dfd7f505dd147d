"""The words in which a comparison is declared.

Grid files, command lines and documents have them from here.
"""

from enum import StrEnum


class Test(StrEnum):
    """How two cells are compared."""

    __test__ = False  # pytest takes the name for its own

    WELCH = "welch"
    PAIRED = "paired"


class Select(StrEnum):
    """The epoch that counts."""

    LAST = "last"
    BEST_VAL = "best_val"
    """That of the best score on `val`, so that the reported set chooses nothing."""
    EMA_LAST = "ema_last"
    """The last, of the averaged weights."""


class Family(StrEnum):
    """Which comparisons share α."""

    TABLE = "table"
    DATASET = "dataset"
    SCREEN = "screen"
    """The table, by the false discovery rate: what is worth seeds of its own, and no verdict."""


class OnDiverged(StrEnum):
    """What a comparison makes of a run that diverged: an outcome without a value."""

    SUPPRESS = "suppress"
    """It is not tested."""
    CHANCE = "chance"
    """The run counts as one that guesses."""

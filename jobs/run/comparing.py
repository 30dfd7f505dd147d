"""The words in which a comparison is declared.

Grid files, command lines and documents have them from here.
"""

from enum import StrEnum

from ..documents import Document, field
from .spec import BASELINE


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


class Change(StrEnum):
    """What a grid's declaration changed, and what could have been seen by then."""

    DECLARED = "declared"
    """Anything, before results of two heads were there."""
    LATE = "late"
    """The first declaration, when they were."""
    AMENDED = "amended"
    """Anything, for a stated reason, when they were."""
    SEEDS = "seeds"
    """More seeds, as the declared interim analyses or anytime allow."""
    COUNTED = "counted"
    """More seeds, as many as the deviation alone says: `vtjobs topup`."""


class CompareSettings(Document, frozen=True, kw_only=True, omit_defaults=False):
    """How heads are compared, as a grid stores it; `jobs/grid/schema.Compare` says what each key
    means.

    A key that an older version did not know is what was the case then.
    """

    test: Test = Test.WELCH
    """Of two cells."""
    alpha: float = 0.05
    margin: float | None = None
    min_effect: float | None = None
    baseline: str = BASELINE
    """The head that the others are compared with; `each`: every pair of heads."""
    metric: str = "top1"
    set: str = "test"
    looks: list[int] = field(default_factory=list)
    """Interim analyses: numbers of seeds per side."""
    anytime: bool = False
    """By e-values, which hold at any stopping time."""
    select: Select = Select.LAST
    family: Family = Family.TABLE
    """The comparisons that share α."""
    on_diverged: OnDiverged = OnDiverged.SUPPRESS
    """What becomes of a comparison with diverged runs."""

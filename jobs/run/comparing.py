"""The words in which a comparison is declared.

Grid files, command lines and documents have them from here.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from ..documents import Document
from ..values import field
from .spec import BASELINE, EACH


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


class Correction(StrEnum):
    """How p values are adjusted for the number of comparisons."""

    HOLM = "holm"
    DUNNETT = "dunnett"
    """Many heads against one baseline, step by step, with Welch's t."""


class OverDatasets(StrEnum):
    """Whether a head is compared on each dataset, or once over all of them."""

    EACH = "each"
    FIXED = "fixed"
    """Once, on these datasets: chance is that of the seeds."""
    RANDOM = "random"
    """Once, on datasets like these: chance is also which ones were taken."""


class OnDiverged(StrEnum):
    """What a comparison makes of a run that diverged: an outcome without a value."""

    SUPPRESS = "suppress"
    """It is not tested."""
    CHANCE = "chance"
    """The run counts as one that guesses."""


class Change(StrEnum):
    """What a grid's declaration changed, and what could have been seen by then."""

    DECLARED = "declared"
    """Anything, when no result could decide it."""
    LATE = "late"
    """The first declaration, when results could."""
    AMENDED = "amended"
    """Anything, for a stated reason, when results could."""
    SEEDS = "seeds"
    """More seeds, as the declared interim analyses or anytime allow."""
    COUNTED = "counted"
    """More seeds by `vtjobs topup`, when results could."""


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
    correction: Correction = Correction.HOLM
    """Of p values for the number of comparisons."""
    over_datasets: OverDatasets = OverDatasets.EACH
    """Whether heads are compared on each dataset, or once over all of them."""


class Rules(Protocol):
    """What of a comparison can contradict itself."""

    @property
    def test(self) -> Test: ...
    @property
    def baseline(self) -> str: ...
    @property
    def margin(self) -> float | None: ...
    @property
    def looks(self) -> Sequence[int]: ...
    @property
    def anytime(self) -> bool: ...
    @property
    def family(self) -> Family: ...
    @property
    def correction(self) -> Correction: ...
    @property
    def over_datasets(self) -> OverDatasets: ...


def contradiction(rules: Rules) -> str:
    """Return which settings of a comparison cannot go together and what to remove, or ""."""
    is_dunnett = rules.correction is Correction.DUNNETT
    is_pooled = rules.over_datasets is not OverDatasets.EACH
    is_sequential = bool(rules.looks) or rules.anytime
    is_screen = rules.family is Family.SCREEN
    found = (
        (
            rules.anytime and rules.looks,
            "anytime: valid at every number of seeds, so it takes no looks. Remove looks",
        ),
        (
            rules.anytime and rules.margin is not None,
            "margin: ties are tested only once, so not with anytime. Remove anytime or margin",
        ),
        (
            is_screen and is_sequential,
            "family: screen cannot be combined with looks or anytime. Remove them",
        ),
        (
            is_dunnett and (rules.test is not Test.WELCH or rules.baseline == EACH),
            "correction: dunnett needs test: welch and one baseline. Use correction: holm",
        ),
        (
            is_dunnett and (is_screen or is_sequential or is_pooled),
            "correction: dunnett cannot be combined with screen, looks, anytime or over_datasets."
            " Use correction: holm",
        ),
        (
            is_pooled and (is_screen or is_sequential),
            "over_datasets: cannot be combined with screen, looks or anytime. Remove them",
        ),
    )
    return next((message for is_wrong, message in found if is_wrong), "")

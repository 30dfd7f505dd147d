"""What a comparison is made of: which test, of what, at which α."""

from collections.abc import Mapping

from ...jobs.run.comparing import (
    Correction,
    Family,
    OnDiverged,
    OverDatasets,
    Select,
    Test,
)
from ...jobs.run.spec import BASELINE
from ...jobs.values import Value, field
from ...jobs.workspace.grid_settings import Declaration
from ..stats.difference import ALPHA


class ComparisonPlan(Value, frozen=True, kw_only=True):
    """What a comparison is made of."""

    test: Test = Test.WELCH
    alpha: float = ALPHA
    margin: float | None = None
    min_effect: float | None = None
    baseline: str = BASELINE
    """The head that all others are compared with."""
    metric: str = "top1"
    set: str = "test"
    select: Select = Select.LAST
    family: Family = Family.TABLE
    on_diverged: OnDiverged = OnDiverged.SUPPRESS
    correction: Correction = Correction.HOLM
    over_datasets: OverDatasets = OverDatasets.EACH
    anytime: bool = False
    """By e-values, which hold at any stopping time."""
    looks: tuple[int, ...] = ()
    """Numbers of seeds; none: one look, at whatever there is."""
    declared: list[Declaration] = field(default_factory=list)
    """The grid's declarations, the last of which this is; none where it was chosen with the results
    at hand, or where the selection is a part of what was declared.
    """
    exploratory: tuple[str, ...] = ()
    """Why p values do not hold α: each reason in a sentence."""
    family_sizes: Mapping[str, int] = field(default_factory=dict)
    """Dataset, or "" for the table -> comparisons that were declared, where only a part of them is
    selected.
    """
    planned: Mapping[str, int] = field(default_factory=dict)
    """Cell -> seeds that were declared, where only a part of them is selected."""

    @property
    def is_by_looks(self) -> bool:
        """Whether only declared numbers of seeds are tested, or any number validly."""
        return bool(self.looks) or self.anytime

    @property
    def is_pooled(self) -> bool:
        """Whether there is one comparison over all datasets."""
        return self.over_datasets is not OverDatasets.EACH

    def family_of(self, dataset: str) -> str:
        """Return the name of the family in which comparisons on a dataset share α."""
        return dataset if self.family is Family.DATASET else ""

"""One cell of a report: all seeds of one combination of settings."""

from ...jobs.documents import Document
from ...jobs.run.comparing import Select
from ...jobs.run.settings import CellSettings
from ...jobs.run.spec import Axes
from ..stats.summary import Description

# The keys that name a cell, beside its axes.
LABELS = ("backbone", "dataset", "head", "recipe", "stage")


class Marks(Document, frozen=True, kw_only=True):
    """What stands beside a cell's mean in a table."""

    best: bool
    """The best mean of its dataset, of a cell with all its seeds; False where none of the others is
    significantly different from it.
    """
    like_best: bool | None
    """Whether it is not significantly different from the best mean, or could not be tested. None
    for the best itself, and without a value.
    """
    p_best: float | None
    """Of the test against the best (Welch), adjusted for `m` by Holm."""
    m: int
    """Pairs of cells of the dataset."""
    alpha: float
    is_top: bool = False
    """Whether it is the best mean itself, and others are marked as like it."""

    @property
    def dagger(self) -> bool:
        """Whether † stands beside it: it is like the best mean, or is that mean and not bold."""
        return bool(self.like_best) or (self.is_top and not self.best)


class Cell(Document, frozen=True, kw_only=True):
    """One row of a report. No number in it is ever NaN."""

    schema_version: int
    cell_id: str
    match_id: str
    """What cells have in common that differ in the head alone."""
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    """Further settings by which cells of the grid differ."""
    fidelity: dict[str, str]
    """Name of a published recipe or head -> whose figures it has: paper or code."""
    metric: str
    better: str
    """max or min."""
    set: str
    """The evaluation set."""
    n: int
    """Seeds with a value."""
    planned: int
    """Runs of the cell, whatever their state."""
    states: dict[str, int]
    """State -> runs in it, without those that completed."""
    diverged_seeds: list[int]
    """Seeds whose runs diverged."""
    chance: float | None
    """What guessing scores, in percent; None for a metric without such a level."""
    missing_seeds: list[int]
    """Planned seeds without a value."""
    lost_seeds: list[int]
    """Those of them that get none by themselves: the run failed, or completed without a score."""
    unscored_seeds: list[int]
    """Those of them whose run completed, and which `vtjobs evaluate` can still score."""
    cancelled_seeds: list[int]
    """Those of them whose run, or the run that it starts from, was cancelled."""
    retried_seeds: list[int]
    """Seeds whose run somebody had tried again: at a look they come after all others."""
    redrawn_seeds: list[int]
    """Those of them whose run had completed or diverged before."""
    values: dict[int, float]
    """Seed -> value, in the order of the seeds."""
    mean: float | None
    std: float | None
    """Sample standard deviation over seeds (ddof 1)."""
    best_minus_last: float | None
    """How far the best epoch on this very set lies from the last, mean over seeds."""
    candidates: list[int]
    """Numbers of epochs that the scored one was chosen from."""
    epochs: list[int]
    """Last epochs of the runs."""
    resumed: int
    """Runs that were interrupted and resumed."""
    resumed_inexactly: int
    """Those of them that were not resumed bit for bit."""
    cut_seeds: list[int]
    """Seeds whose runs were cut into smaller micro-batches after they ran out of memory."""
    imported_seeds: list[int]
    """Seeds whose runs were trained elsewhere: of how, vtjobs knows what their files say."""
    baseline: str | None
    """The cell that differs from it in the head alone and has the baseline's."""
    gain: float | None
    """Its mean minus the baseline's."""
    gain_interval: list[float] | None
    """Of the gain, by the plan's test at 1 - alpha; None where that would be a look of its own."""
    is_baseline: bool
    """Whether gains are over it."""
    select: Select
    """Which epoch was scored."""
    apart: int
    """Runs of a variance study, which are no replicates and do not count in `n`."""
    tried: int
    """Cells of the workspace with the same backbone, dataset, head and stage that have begun,
    whatever their recipe and settings: what a best one was chosen from. 0: it has not begun.
    """
    baseline_head: str
    """The head that gains are over, or each."""
    run_ids: dict[int, str] | None = None
    """Seed -> the run that completed."""
    best_values: dict[int, float] | None = None
    """Seed -> the value of its best epoch on this very set."""
    evaluations: list[int] | None = None
    """Numbers of epochs that runs were scored at on this very set."""
    specs: list[CellSettings] | None = None
    """Its own stage, then those before it; none of a cell whose runs were imported."""
    marks: Marks | None = None
    """What stands beside its mean in a table."""
    description: Description | None = None
    """What the seeds say of mean and spread, with `--detail`."""

    @property
    def waiting(self) -> list[int]:
        """Planned seeds whose outcome is still to come, or was cancelled."""
        return sorted(set(self.missing_seeds) - set(self.lost_seeds) - set(self.diverged_seeds))

    @property
    def imported_values(self) -> list[int]:
        """Seeds with a value that were trained elsewhere."""
        return [seed for seed in self.imported_seeds if seed in self.values]

    @property
    def imported_share(self) -> float:
        """Their share of the seeds with a value, 0 to 1."""
        return len(self.imported_values) / len(self.values) if self.values else 0.0

    def is_mixed_with(self, other: "Cell", *, by_seed: bool = False) -> bool:
        """Whether a comparison with the other cell is one of programs as well.

        Args:
            other: the other side.
            by_seed: whether seeds are paired: then each pair is to be of one kind.
        """
        if by_seed:
            shared = self.values.keys() & other.values.keys()
            return bool(shared.intersection({*self.imported_values} ^ {*other.imported_values}))
        return self.imported_share != other.imported_share

    def place(self, seed: int) -> tuple[bool, int]:
        """Return where a seed stands in the order of looks.

        One that failed was replaced, and does not take its place back when it is tried again.
        """
        return seed in self.retried_seeds, seed

    @property
    def outcomes(self) -> frozenset[int]:
        """Seeds that have a value, or diverged."""
        return frozenset(self.values).union(self.diverged_seeds)

    @property
    def marked(self) -> Marks:
        """Its marks, in a report that was made with a plan."""
        assert self.marks is not None, "the report was made without a plan"
        return self.marks

    @property
    def described(self) -> Description:
        """Its description, in a report that was made with them."""
        assert self.description is not None, "the report was made without descriptions"
        return self.description

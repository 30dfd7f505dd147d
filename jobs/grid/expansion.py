"""What a grid expands to: cells, and their runs."""

from ..run.settings import OwnFunction
from ..run.spec import Axes, CellSpec, digest
from ..values import Value, field
from .entries import Entry


class Cell(Value, frozen=True, kw_only=True):
    """One combination of everything but the seed."""

    spec: CellSpec
    cell_id: str
    match_id: str
    stage: str
    labels: dict[str, str]
    """Backbone, dataset, head and recipe as the user named them."""
    axes: Axes
    """Those in which all points agree that it was made for."""
    is_baseline: bool
    """Whether every head in the chain of stages is the supervised one."""
    parent: int | None
    """Index of the parent stage's cell."""
    entries: tuple[Entry, Entry]
    """The grid's entries for backbone and dataset, for later stages."""


class Made(Value, frozen=True, kw_only=True):
    """A cell, as it was made for one point of the grid."""

    cell: int
    """Its index."""
    axes: Axes
    seeds: dict[int, str]
    """Those that the point has, with their runs: another point of the cell may have others."""


class Run(Value, frozen=True):
    """One run of an expansion."""

    run_id: str
    cell: int
    seed: int
    """Or the place in the design, where streams vary apart."""
    parent: str | None


class Expansion(Value, frozen=True, kw_only=True):
    """All that a grid stands for."""

    cells: list[Cell]
    runs: list[Run]
    excluded: dict[str, int]
    """How many runs each exclusion rule took away."""
    paths: dict[str, str]
    """Where datasets and weights lie, by fingerprint."""
    streams: dict[int, dict[str, int]] = field(default_factory=dict)
    """Place in the design -> value of each stream; empty where one seed moves them all."""
    metrics: list[OwnFunction] = field(default_factory=list)
    """Of the lab, beside those of vtjobs."""
    sources: dict[str, str] = field(default_factory=dict)
    """File or module of the lab's own parts, as the grid names it -> its text."""

    def chain(self, cell: Cell) -> list[Cell]:
        """Return a cell, then those of the stages that it begins with, the nearest first.

        A teacher is no beginning: its student is trained from scratch.
        """
        found = [cell]
        while (parent := self._begins_with(found[-1])) is not None:
            found.append(self.cells[parent])
        return found

    def ends(self) -> list[Cell]:
        """Return the cells that no other one begins with, teachers among them."""
        begun = {self._begins_with(cell) for cell in self.cells}
        return [cell for number, cell in enumerate(self.cells) if number not in begun]

    def _begins_with(self, cell: Cell) -> int | None:
        if cell.parent is None or cell.spec.settings.head.learns_from_a_stage:
            return None
        return cell.parent

    @property
    def grid_hash(self) -> str:
        return digest("\n".join(sorted(run.run_id for run in self.runs)), 8)

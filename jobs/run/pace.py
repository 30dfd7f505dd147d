"""How long runs take: by what was seen of their cell, else of their backbone and dataset."""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from ..values import Value, field

# A machine is not equally fast every day: no estimate is closer than this share of itself.
FLOOR = 0.1
# How much wider it is where no run has come to its end yet, and where only other cells were seen.
EARLY = 0.3
OTHERS = 0.25


class Basis(StrEnum):
    """What an estimate rests on."""

    CELL = "cell"
    ALIKE = "backbone_dataset"
    UNKNOWN = "unknown"


class Kind(NamedTuple):
    """What a cell shares with the cells that are estimated by it."""

    backbone: str
    dataset: str


class Seen(Value, frozen=True):
    """Seconds of runs that were seen: their number, sum and sum of squares."""

    runs: float = 0.0
    """A run that has come halfway counts half."""
    total: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Seen") -> "Seen":
        return Seen(self.runs + other.runs, self.total + other.total, self.squares + other.squares)

    def times(self, factor: float) -> "Seen":
        """Return the same runs, had each taken `factor` times as long."""
        return Seen(self.runs, self.total * factor, self.squares * factor**2)

    @property
    def mean(self) -> float:
        """Seconds of a run."""
        return self.total / self.runs

    @property
    def variation(self) -> float:
        """The standard deviation, as a share of the mean."""
        variance = max(0.0, self.squares / self.runs - self.mean**2)
        return math.sqrt(variance) / self.mean if self.mean else 0.0


NOTHING = Seen()


def once(seconds: float, weight: float = 1.0) -> Seen:
    """Return one run that was seen, or that has come as far as `weight` says."""
    return Seen(weight, weight * seconds, weight * seconds**2)


class Pace(Value, frozen=True, kw_only=True):
    """What a run of a cell takes."""

    seconds: float
    doubt: float
    """How far all of them may be off together, as a share."""
    spread: float
    """How far one may be off by chance, as a share."""
    basis: Basis

    def factor(self, sign: int, runs: int = 1) -> float:
        """Return what one end of the range has `seconds` times: chance evens out over many runs."""
        return 1 + sign * min(0.9, math.hypot(self.doubt, self.spread / math.sqrt(runs)))


class CellFacts(Value, frozen=True, kw_only=True):
    """What is known of a cell before any of its runs."""

    kind: Kind
    epochs: int


class History(Value, frozen=True, kw_only=True):
    """What was seen in a workspace."""

    cells: Mapping[str, Seen] = field(default_factory=dict)
    """Cell -> its runs."""
    facts: Mapping[str, CellFacts] = field(default_factory=dict)
    """Of every cell that was seen or is asked about."""

    def paces(self, cell_ids: Iterable[str]) -> dict[str, Pace]:
        """Return what a run of each cell takes; a cell of which nothing is known is left out."""
        per_epoch = self._per_epoch()
        found = {cell_id: self._pace(cell_id, per_epoch) for cell_id in cell_ids}
        return {cell_id: pace for cell_id, pace in found.items() if pace is not None}

    def _pace(self, cell_id: str, per_epoch: Mapping[Kind, Seen]) -> Pace | None:
        if cell_id in self.cells:
            return _pace(self.cells[cell_id], Basis.CELL)
        facts = self.facts.get(cell_id)
        if facts is None or facts.kind not in per_epoch:
            return None
        return _pace(per_epoch[facts.kind].times(facts.epochs), Basis.ALIKE)

    def _per_epoch(self) -> dict[Kind, Seen]:
        """Return backbone and dataset -> the seconds of an epoch."""
        found: dict[Kind, Seen] = {}
        for cell_id, seen in self.cells.items():
            facts = self.facts.get(cell_id)
            if facts is not None and facts.epochs:
                found[facts.kind] = found.get(facts.kind, NOTHING) + seen.times(1 / facts.epochs)
        return found


def _pace(seen: Seen, basis: Basis) -> Pace:
    doubt, spread = math.hypot(FLOOR, EARLY * max(0.0, 1.0 - seen.runs)), seen.variation
    if basis is Basis.ALIKE:
        # What makes cells differ from each other does not even out.
        doubt, spread = math.hypot(doubt, OTHERS, spread), 0.0
    return Pace(seconds=seen.mean, doubt=doubt, spread=spread, basis=basis)

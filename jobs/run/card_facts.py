"""What the ledger knows of a run whose weights are exported, for the model card."""

from ..documents import Document


class CardLabels(Document, frozen=True, kw_only=True):
    """What the run is called in tables."""

    backbone: str
    dataset: str
    head: str
    recipe: str


class CardScore(Document, frozen=True, kw_only=True):
    """A score of the run's last epoch."""

    set_name: str
    metric: str
    last: float


class CardCell(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The run's cell over its seeds."""

    n: int
    mean: float | None
    std: float | None
    metric: str


class CardFacts(Document, frozen=True, kw_only=True):
    """What the ledger knows of a run."""

    grid_id: str
    labels: CardLabels
    results: list[CardScore]
    cell: CardCell

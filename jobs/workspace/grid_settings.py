"""The settings of a stored grid: everything that may change without changing a run."""

from typing import Any

from ..documents import Document
from ..run.comparing import Change, CompareSettings
from ..run.design import StudyDesign
from ..run.settings import OwnFunction
from ..values import field
from .imported import ImportedFrom


class ResourceSettings(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What each run asks of the machine; `jobs/config/resources.py` says what each key means."""

    nodes: int = 1
    gpus_per_node: int | None = None
    gpu: str | None = None
    per_gpu: int = 1
    cpu_ranks: int = 1
    threads: int = 1
    pack: int | str = "auto"
    walltime: int | None = None
    """Seconds."""

    @property
    def gpus(self) -> float:
        """GPUs of one run, on all its nodes; a share of one where runs share it."""
        return (self.gpus_per_node or 0) * self.nodes / self.per_gpu


class DeclaredCells(Document, frozen=True, kw_only=True, omit_defaults=False):
    """Cells that were declared with the same seeds."""

    seeds: list[int]
    """The seeds of each."""
    cells: list[str]
    """Their ids."""


class Declaration(Document, frozen=True, kw_only=True, omit_defaults=False):
    """How a grid declared that its heads are compared."""

    at: float
    """When, seconds since 1970."""
    started: int
    """How many of the grid's runs had started by then."""
    runs: int
    """How many it had."""
    compare: CompareSettings | None
    """None: nothing is declared any more."""
    reason: str | None
    """Why it replaced another one after runs had started."""
    finished: int = 0
    """How many of the grid's runs had results by then: a score, or they diverged."""
    change: Change = Change.DECLARED
    """What it changed, and what could have been seen."""
    design: list[DeclaredCells] = field(default_factory=list)
    """Its runs; empty in a declaration of an older version."""


class GridSettings(Document, frozen=True, kw_only=True, omit_defaults=False):
    """A grid's settings as they are stored, in `grid.json` and in the ledger."""

    grid_id: str
    name: str
    description: str = ""
    submitted_at: float
    """Of the latest submission, seconds since 1970."""
    retries: int
    resources: ResourceSettings
    checkpoint_every_s: int
    evaluate_every: int
    """Epochs."""
    record_depth: bool = False
    """Whether evaluations record what each block adds to its input."""
    sets: list[str] = field(default_factory=list)
    """Further sets to score."""
    metrics: list[OwnFunction] = field(default_factory=list)
    """Of the lab, beside those of vtjobs."""
    variance: StudyDesign | None = None
    compare: CompareSettings | None = None
    max_running: int | None = None
    halve_micro_batch: bool = False
    backend: str
    site: dict[str, Any] = field(default_factory=dict)
    """Settings of the backend."""
    virtual_ranks: int = 1
    """What the world size must divide for every cell."""
    paths: dict[str, str] = field(default_factory=dict)
    """Fingerprint of a dataset or weights file -> where it lies."""
    excluded: dict[str, int] = field(default_factory=dict)
    """Rule of the grid -> the number of combinations that it left out."""
    declarations: list[Declaration] = field(default_factory=list)
    """The last one holds."""
    submitted_by: str = ""
    """user@host of the latest submission; empty: it was not recorded."""
    imported: ImportedFrom | None = None
    """Where its runs are from; None: vtjobs trains them."""

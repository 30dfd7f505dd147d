"""What an attempt tells its ranks beside the run itself."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...jobs.run.settings import OwnFunction
from ...jobs.run.spec import RunSpec
from ..environment import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What training needs to know that does not decide the weights."""

    run_id: str
    folder: Path
    """The attempt's folder for checkpoints."""
    origin: Origin
    """Stands in every checkpoint."""
    data_root: Path
    paths: dict[str, str] = field(default_factory=dict)
    resume: Path | None = None
    """A verified checkpoint of this run to go on from."""
    init: Path | None = None
    """The parent stage's final weights, and what it was, where a run has one."""
    parent: RunSpec | None = None
    checkpoint_every_s: float = 600.0
    evaluate_every: int = 1
    record_depth: bool = False
    """Whether evaluations record what each block adds to its input."""
    sets: tuple[str, ...] = ()
    """Scored beside test and, where it is held out, val."""
    metrics: tuple[OwnFunction, ...] = ()
    """Of the lab, beside those of vtjobs."""
    micro_split: int = 1
    workers: int = 0
    """Of the loader."""
    decoded: Path | None = None
    """Where decoded sets of images are kept."""
    decoded_bytes: int = 0
    """What these may take."""
    decoders: int = 0
    """Processes that decode sets of images."""
    superseded: Callable[[], bool] = lambda: False
    """Whether a higher attempt has claimed the run: it may be about to read what this one has
    saved.
    """

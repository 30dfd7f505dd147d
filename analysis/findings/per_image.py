"""What of the seeds' spread would carry to new images.

From which image each seed classifies rightly.

A run's accuracy is a mean over the images of a finite test set. Of the variance over seeds one part
is the seeds' own; the other is that each seed errs on other images of this very set, and would
shrink with a larger one.
"""

import math
from collections.abc import Mapping
from typing import Any

from ...jobs.documents import Document
from ...jobs.run.spec import Axes, canonical
from ...jobs.workspace.lineage import completed_by
from ...jobs.workspace.paths import Workspace
from ...jobs.workspace.stored_grid import read_spec
from ..stats.summary import LEVEL, spread_factors
from .cell import Cell
from .study import AnyStudy

SCHEMA_VERSION = 1
CORRECT = "correct.safetensors"
CHOSEN = "chosen.safetensors"


class Split(Document, frozen=True, kw_only=True):
    """How the variance of accuracy over seeds splits, in percentage points."""

    n: int
    """Seeds."""
    images: int
    """Of the set."""
    why_not: str
    """Why it is not split."""
    std: float | None
    """Over seeds."""
    std_carries: float | None
    """Of the part that carries to new images; 0 where its estimate is negative."""
    std_carries_interval: list[float] | None
    """Of the first part, at 95 %: what so few seeds can say of it."""
    std_test_set: float | None
    """Of the part that errors which are independent between runs and images make on a finite set.
    """
    variance_carries: float | None
    """The estimate of the first part, as it is."""
    std_binomial: float | None
    """Of one accuracy on as many images."""
    disagreement: float | None
    """Images on which two seeds differ in being right, mean over pairs, in percent."""


class CellSplit(Split, frozen=True, kw_only=True):
    """The split of one cell's spread."""

    schema_version: int
    cell_id: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    set: str
    mean: float | None
    without: list[int]
    """Seeds whose results by image are not stored; they are part of nothing."""
    disagreement_baseline: float | None
    """Images on which just one of the cell and its baseline is right, mean over seeds, in percent.
    """
    studies: list[AnyStudy] | None = None
    """Of the cell's streams of randomness."""


class McNemar(Document, frozen=True, kw_only=True):
    """Two checkpoints on the same images."""

    images: int
    """Of the set."""
    both: int
    """Right by both."""
    only_first: int
    """Right by the first alone."""
    only_second: int
    """Right by the second alone."""
    neither: int
    """Right by none."""
    difference: float
    """In points."""
    p: float | None
    """Two sides of a fair coin over the images where just one is right; None without such an
    image.
    """


def split(correct: Mapping[int, Any]) -> Split:
    """Split the variance of accuracy over seeds by crossed mean squares of runs and images.

    σ²(run) = (MS_run - MS_rest) / J is the part that carries to new images, MS_rest / J what errors
    that are independent between runs and images make on J of them; their sum is the sample variance
    over seeds.

    Args:
        correct: seed -> [J] bool array, all of one set.
    """
    import numpy

    runs, images = len(correct), len(next(iter(correct.values()))) if correct else 0
    if runs < 3:
        return _unsplit(runs, images, "needs three seeds with stored per-image results")
    table = numpy.stack(
        [numpy.asarray(correct[seed], dtype=numpy.float64) for seed in sorted(correct)]
    )
    grand, by_run, by_image = table.mean(), table.mean(1), table.mean(0)
    ms_run = images * float(((by_run - grand) ** 2).sum()) / (runs - 1)
    rest = table - by_run[:, None] - by_image[None, :] + grand
    ms_rest = float((rest**2).sum()) / ((runs - 1) * (images - 1))
    carries = (ms_run - ms_rest) / images
    # Two seeds differ on an image where one is right and the other wrong: r (K - r) of the pairs.
    right = table.sum(0)
    pairs = runs * (runs - 1) / 2
    return Split(
        n=runs,
        images=images,
        why_not="",
        std=100 * math.sqrt(ms_run / images),
        std_carries=100 * math.sqrt(max(0.0, carries)),
        std_carries_interval=_interval(ms_run, ms_rest, runs, images),
        std_test_set=100 * math.sqrt(ms_rest / images),
        variance_carries=10_000 * carries,
        std_binomial=100 * math.sqrt(float(grand * (1 - grand)) / images),
        disagreement=100 * float((right * (runs - right)).sum()) / pairs / images,
    )


def _interval(ms_run: float, ms_rest: float, runs: int, images: int) -> list[float]:
    """Return the interval of the deviation that carries, in points.

    That of the runs' mean square by χ² with runs - 1 degrees of freedom, less what images make,
    whose mean square has so many that it counts as known (Burdick and Graybill 1992, chapter 3).
    """
    low, high = spread_factors(runs, LEVEL)
    bounds = [(factor**2 * ms_run - ms_rest) / images for factor in (low, high)]
    return [100 * math.sqrt(max(0.0, bound)) for bound in bounds]


def _unsplit(runs: int, images: int, why_not: str) -> Split:
    return Split(
        n=runs,
        images=images,
        why_not=why_not,
        std=None,
        std_carries=None,
        std_carries_interval=None,
        std_test_set=None,
        variance_carries=None,
        std_binomial=None,
        disagreement=None,
    )


class ComparedRuns(McNemar, frozen=True, kw_only=True):
    """Two runs on the same images."""

    schema_version: int
    runs: list[str]
    """The two, in the order of the counts."""
    set: str
    """The evaluation set."""


def mcnemar(one: Any, other: Any) -> McNemar:
    """Compare two checkpoints on the same images (McNemar 1947, exact).

    It says nothing of the methods behind them.

    Args:
        one: [J] bool, which images the first classifies rightly.
        other: the same of the second.
    """
    from scipy.stats import binomtest

    first, second = int((one & ~other).sum()), int((other & ~one).sum())
    images = len(one)
    return McNemar(
        images=images,
        both=int((one & other).sum()),
        only_first=first,
        only_second=second,
        neither=int((~one & ~other).sum()),
        difference=100 * (first - second) / images,
        p=float(binomtest(first, first + second).pvalue) if first + second else None,
    )


def images_of(workspace: Workspace, run_id: str, set_name: str) -> tuple[Any, ...]:
    """Return what decides which images a run's set has: equal where they are the same ones."""
    spec = read_spec(workspace.run(run_id))
    dataset = spec.dataset
    is_drawn = set_name == "val" and dataset.val is not None
    drawn = (dataset.val, spec.seeds["split"]) if is_drawn else ()
    own = (dataset.source, canonical(dataset.args)) if dataset.is_own else ()
    return (dataset.name, dataset.fingerprint, set_name, *own, *drawn)


def read(workspace: Workspace, run_id: str, set_name: str) -> Any:
    """Return [J] bool of a completed run's final weights on a set, or None where there are no bits
    to be read.

    Runs of older versions and those without a classifier have none.
    """
    import numpy

    stored, size = _stored(workspace, run_id, CORRECT, set_name)
    return None if stored is None else numpy.unpackbits(stored, count=int(size)).astype(bool)


def read_chosen(workspace: Workspace, run_id: str, set_name: str) -> Any:
    """Return the class that a completed run's final weights choose for each image of a set, [J]
    int16 or int32, or None where they are not stored, as `read` does.
    """
    return _stored(workspace, run_id, CHOSEN, set_name)[0]


def _stored(workspace: Workspace, run_id: str, file: str, set_name: str) -> tuple[Any, str]:
    """Return what the final checkpoint has of a set in a file, and the file's word on it.

    Nothing where it is not there, or cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    folder = workspace.run(run_id)
    attempt = completed_by(folder, 1 << 30)
    if attempt is None:
        return None, ""
    newest = max(folder.checkpoints(attempt).glob("step-*"), default=None)
    if newest is None:
        return None, ""
    try:
        with safe_open(str(newest / file), framework="np") as stored:
            if set_name not in stored.keys():
                return None, ""
            told = (stored.metadata() or {}).get(set_name, "")
            return stored.get_tensor(set_name), told
    except (SafetensorError, OSError):
        return None, ""


def variance(workspace: Workspace, cells: list[Cell]) -> list[CellSplit]:
    """Return for each cell of a report (with its `run_ids`) how the spread of its accuracy splits.

    A seed whose bits are not there is named in `without`, and is part of nothing.
    """
    by_id = {cell.cell_id: cell for cell in cells}
    baselines: dict[str, dict[int, Any]] = {}
    found = []
    for cell in cells:
        there = _read_all(workspace, cell)
        baseline = cell.baseline if cell.baseline in by_id else None
        if baseline is not None and baseline not in baselines:
            baselines[baseline] = _read_all(workspace, by_id[baseline])
        run_ids = _run_ids(cell)
        between = _between(there, baselines[baseline]) if baseline is not None else None
        parts = split(there)
        if len({images_of(workspace, run_ids[seed], cell.set) for seed in there}) > 1:
            between, parts = None, _unsplit(0, 0, "each seed holds out different images")
        elif cell.specs and not cell.specs[0].dataset.has_classes:
            parts = _unsplit(0, 0, "its images are not right or wrong as a whole")
        found.append(
            CellSplit(
                schema_version=SCHEMA_VERSION,
                cell_id=cell.cell_id,
                backbone=cell.backbone,
                dataset=cell.dataset,
                head=cell.head,
                recipe=cell.recipe,
                stage=cell.stage,
                axes=cell.axes,
                set=cell.set,
                mean=cell.mean,
                without=sorted(run_ids.keys() - there.keys()),
                disagreement_baseline=between,
                **{name: getattr(parts, name) for name in Split.__struct_fields__},
            )
        )
    return found


def _run_ids(cell: Cell) -> dict[int, str]:
    assert cell.run_ids is not None, "the report was made without specs"
    return cell.run_ids


def _read_all(workspace: Workspace, cell: Cell) -> dict[int, Any]:
    bits = {seed: read(workspace, run_id, cell.set) for seed, run_id in _run_ids(cell).items()}
    return {seed: one for seed, one in bits.items() if one is not None}


def _between(one: Mapping[int, Any], other: Mapping[int, Any]) -> float | None:
    """Return the share of images on which just one of two methods is right, mean over the seeds of
    both, in percent.
    """
    shares = [
        float((one[seed] != other[seed]).mean()) for seed in sorted(one.keys() & other.keys())
    ]
    return 100 * math.fsum(shares) / len(shares) if shares else None

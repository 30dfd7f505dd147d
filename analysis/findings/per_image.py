"""What of the seeds' spread would carry to new images.

From which image each seed classifies rightly.

A run's accuracy is a mean over the images of a finite test set. Of the variance over seeds one part
is the seeds' own; the other is that each seed errs on other images of this very set, and would
shrink with a larger one.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...jobs.run.spec import RunSpec
from ...jobs.workspace.lineage import completed_by
from ...jobs.workspace.paths import Workspace

SCHEMA_VERSION = 1
FILE = "correct.safetensors"


def split(correct: Mapping[int, Any]) -> dict[str, Any]:
    """Split the variance of accuracy over seeds, in percentage points, by crossed mean squares of
    runs and images.

    σ²(run) = (MS_run - MS_rest) / J is the part that carries to new images, MS_rest / J what errors
    that are independent between runs and images make on J of them; their sum is the sample variance
    over seeds.

    Args:
        correct: seed -> [J] bool array, all of one set.

    Returns:
        `std` over seeds, `std_carries` and `std_test_set` (√ of the two parts; a negative estimate
        of the first is 0 and stands in `variance_carries` as it is), `std_binomial` of one accuracy
        on J images, `disagreement`: the share of images on which two seeds differ in being right,
        mean over pairs, in percent.
    """
    import numpy

    runs, images = len(correct), len(next(iter(correct.values()))) if correct else 0
    found: dict[str, Any] = {"n": runs, "images": images, "why_not": ""}
    names = (
        "std",
        "std_carries",
        "std_test_set",
        "variance_carries",
        "std_binomial",
        "disagreement",
    )
    found |= dict.fromkeys(names)
    if runs < 3:
        return found | {"why_not": "needs three seeds with stored per-image results"}
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
    return found | {
        "std": 100 * math.sqrt(ms_run / images),
        "std_carries": 100 * math.sqrt(max(0.0, carries)),
        "std_test_set": 100 * math.sqrt(ms_rest / images),
        "variance_carries": 10_000 * carries,
        "std_binomial": 100 * math.sqrt(float(grand * (1 - grand)) / images),
        "disagreement": 100 * float((right * (runs - right)).sum()) / pairs / images,
    }


def mcnemar(one: Any, other: Any) -> dict[str, Any]:
    """Compare two checkpoints on the same images (McNemar 1947, exact).

    It says nothing of the methods behind them.

    Args:
        one: [J] bool, which images the first classifies rightly.
        other: the same of the second.

    Returns:
        `images`, right by `both`, by `only_first`, `only_second` and by `neither`, `difference` in
            points, and `p`: two
        sides of a fair coin over the images where just one is right; None where there is no such
        image.
    """
    from scipy.stats import binomtest

    first, second = int((one & ~other).sum()), int((other & ~one).sum())
    images = len(one)
    return {
        "images": images,
        "both": int((one & other).sum()),
        "only_first": first,
        "only_second": second,
        "neither": int((~one & ~other).sum()),
        "difference": 100 * (first - second) / images,
        "p": float(binomtest(first, first + second).pvalue) if first + second else None,
    }


def images_of(workspace: Workspace, run_id: str, set_name: str) -> tuple[Any, ...]:
    """Return what decides which images a run's set has: equal where they are the same ones."""
    spec = RunSpec.parse(workspace.run(run_id).spec.read_text())
    dataset = spec.dataset
    drawn = (
        (dataset.get("val"), spec.seeds["split"]) if set_name == "val" and "val" in dataset else ()
    )
    return (dataset["name"], dataset["fingerprint"], set_name, *drawn)


def read(workspace: Workspace, run_id: str, set_name: str) -> Any:
    """Return [J] bool of a completed run's final weights on a set, or None where there are no bits
    to be read.

    Runs of older versions and those without a classifier have none.
    """
    folder = workspace.run(run_id)
    attempt = completed_by(folder, 1 << 30)
    if attempt is None:
        return None
    place = max(folder.checkpoints(attempt).glob("step-*"), default=None)
    return _bits(place / FILE, set_name) if place is not None and (place / FILE).exists() else None


def _bits(path: Path, set_name: str) -> Any:
    import numpy
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as stored:
            if set_name not in stored.keys():
                return None
            size = int(stored.metadata()[set_name])
            return numpy.unpackbits(stored.get_tensor(set_name), count=size).astype(bool)
    except (SafetensorError, OSError):
        return None


def variance(workspace: Workspace, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each cell of a report (with its `run_ids`) how the spread of its accuracy splits.

    A seed whose bits are not there is named in `without`, and is part of nothing.
    `disagreement_baseline` is the share of images on which just one of the cell and its baseline is
    right, mean over seeds, in percent.
    """
    by_id = {cell["cell_id"]: cell for cell in cells}
    baselines: dict[str, dict[int, Any]] = {}
    found = []
    for cell in cells:
        there = _read_all(workspace, cell)
        baseline = cell["baseline"] if cell["baseline"] in by_id else None
        if baseline is not None and baseline not in baselines:
            baselines[baseline] = _read_all(workspace, by_id[baseline])
        names = ("cell_id", "backbone", "dataset", "head", "recipe", "stage", "axes", "set")
        head = {"schema_version": SCHEMA_VERSION, **{name: cell[name] for name in names}}
        head["mean"] = cell["mean"]
        head["without"] = sorted(int(seed) for seed in cell["run_ids"] if int(seed) not in there)
        of = {images_of(workspace, cell["run_ids"][str(seed)], cell["set"]) for seed in there}
        if len(of) > 1:
            found.append(
                head
                | {"disagreement_baseline": None}
                | split({})
                | {"why_not": "each seed holds out different images"}
            )
            continue
        head["disagreement_baseline"] = (
            _between(there, baselines[baseline]) if baseline is not None else None
        )
        found.append(head | split(there))
    return found


def _read_all(workspace: Workspace, cell: dict[str, Any]) -> dict[int, Any]:
    bits = {
        int(seed): read(workspace, run_id, cell["set"]) for seed, run_id in cell["run_ids"].items()
    }
    return {seed: one for seed, one in bits.items() if one is not None}


def _between(one: Mapping[int, Any], other: Mapping[int, Any]) -> float | None:
    """Return the share of images on which just one of two methods is right, mean over the seeds of
    both, in percent.
    """
    shares = [
        float((one[seed] != other[seed]).mean()) for seed in sorted(one.keys() & other.keys())
    ]
    return 100 * math.fsum(shares) / len(shares) if shares else None

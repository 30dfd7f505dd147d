"""What papers print.

Their numbers as records, and what is left of their gains when they are computed anew.
"""

import math
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from ...jobs.errors import BadInput, NothingMatched, suggest
from ..stats.difference import Difference, against_one, welch_of_summaries

SCHEMA_VERSION = 1
# Which epoch's accuracy a paper prints. The published code of DRLoc logs the maximum over epochs on
# the set that it reports, RelViT's keeps the best checkpoint by that set; the thesis takes the last
# epoch (section 6.3.4).
SELECTION = {"drloc": "best", "relvit": "best", "thesis": "last"}
PAPERS = tuple(SELECTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One printed number."""

    id: str
    table: str
    dataset: str
    backbone: str
    method: str
    protocol: str
    epochs: int | None
    metric: str
    mean: float
    std: float | None = None
    n_seeds: int | None = None
    """None where the source does not say."""
    decimals: int = 2
    """As many are printed."""
    min: float | None = None
    max: float | None = None
    seed0: float | None = None
    """Of a study over seeds, of which seed 0 is none."""
    recipe: str | None = None
    pretrain: str | None = None
    baseline: str | None = None
    """The record that it is measured against."""
    reported_delta: float | None = None
    """The improvement as printed."""
    variant: dict[str, Any] = field(default_factory=dict)
    ssl_tasks: tuple[str, ...] = ()
    at_epoch: int | None = None
    cited: bool = False
    doubtful: str = ""
    """Why a look is needed before the number is used."""
    note: str = ""

    @property
    def half_unit(self) -> float:
        """By how much a printed number may be off."""
        return 0.5 / 10.0**self.decimals


@cache
def records(paper: str) -> dict[str, Published]:
    """Return a paper's results by id.

    Raises:
        BadInput: there is no such paper.
    """
    import yaml

    if paper not in PAPERS:
        raise BadInput(f"unknown paper {paper!r}. {suggest(paper, PAPERS)}")
    text = (
        files("vtjobs.jobs")
        .joinpath("catalogue", "papers", f"{paper}.yaml")
        .read_text(encoding="utf-8")
    )
    rows = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {
        row["id"]: Published(**{**row, "ssl_tasks": tuple(row.get("ssl_tasks", ()))})
        for row in rows
    }


def select(name: str) -> list[Published]:
    """Return the records of a paper (`drloc`) or of one of its tables (`drloc:3`).

    Raises:
        BadInput: there is no such paper.
        NothingMatched: it has no such table.
    """
    paper, _, table = name.partition(":")
    found = list(records(paper).values())
    if not table:
        return found
    tables = list(dict.fromkeys(record.table for record in found))
    if table not in tables:
        raise NothingMatched(
            f"{paper} has no results for table {table!r}. Its tables: {', '.join(tables)}"
        )
    return [record for record in found if record.table == table]


def audit(name: str) -> list[dict[str, Any]]:
    """Compute every printed gain anew, and test it where the paper gives a spread.

    A gain is tested by Welch from the printed summaries where both sides have a deviation, and
    against a single number where the other side is one. `p_worst` is the largest p over what
    rounding to two decimals and a deviation with ddof 0 leave open.
    """
    found = []
    for record in select(name):
        if record.baseline is None:
            continue
        baseline = records(name.partition(":")[0])[record.baseline]
        gain = record.mean - baseline.mean
        tested = _tested(record, baseline)
        printed = record.reported_delta
        found.append(
            {
                "schema_version": SCHEMA_VERSION,
                "id": record.id,
                "baseline": baseline.id,
                **{
                    key: getattr(record, key)
                    for key in ("table", "dataset", "backbone", "method", "epochs", "metric")
                },
                "baseline_method": baseline.method,
                "mean": record.mean,
                "std": record.std,
                "n": record.n_seeds,
                "mean_baseline": baseline.mean,
                "std_baseline": baseline.std,
                "n_baseline": baseline.n_seeds,
                "printed": printed,
                "recomputed": round(gain, 10),
                # Printed numbers are multiples of a hundredth; the slack is that of floats.
                "agrees": None if printed is None else abs(gain - printed) < record.half_unit,
                "p": tested.p,
                "p_worst": _worst(record, baseline),
                "interval": (
                    [tested.interval.low, tested.interval.high] if tested.interval else None
                ),
                "why_not": tested.why_not,
                "doubtful": record.doubtful or baseline.doubtful,
            }
        )
    return found


def _tested(record: Published, baseline: Published) -> Difference:
    return _test(record, baseline, mean=record.mean, std=record.std, std_baseline=baseline.std)


def _test(
    record: Published,
    baseline: Published,
    *,
    mean: float,
    std: float | None,
    std_baseline: float | None,
) -> Difference:
    n, m = record.n_seeds or 0, baseline.n_seeds or 0
    if std is not None and std_baseline is not None and min(n, m) > 1:
        return welch_of_summaries(mean, std, n, baseline.mean, std_baseline, m)
    if std is not None and n > 1 and m == 1:
        return against_one(mean, std, n, baseline.mean)
    why = "no standard deviation or no number of runs is printed"
    return Difference(n=n, n_baseline=m, difference=mean - baseline.mean, why_not=why)


def _worst(record: Published, baseline: Published) -> float | None:
    gain = record.mean - baseline.mean
    # Both means may be off by half a unit; at the least the difference is none.
    least = max(0.0, abs(gain) - record.half_unit - baseline.half_unit)
    found = _test(
        record,
        baseline,
        mean=baseline.mean + least,
        std=widest(record),
        std_baseline=widest(baseline),
    )
    return found.p


def widest(record: Published) -> float | None:
    """Return the largest sample deviation that may stand behind a printed one.

    Rounded, or with ddof 0.
    """
    n = record.n_seeds
    if record.std is None or n is None or n < 2:
        return record.std
    return (record.std + record.half_unit) * math.sqrt(n / (n - 1))

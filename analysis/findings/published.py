"""What papers print: their numbers as records, and what is left of their gains, computed anew.

A file for each paper, a record a line:

- drloc: "Efficient Training of Visual Transformers with Small Datasets" (Liu, Sangineto, Bi, Sebe,
  Lepri, De Nadai; NeurIPS 2021; paper and supplementary material).
- relvit: "Where are my Neighbors? Exploiting Patches Relations in Self-Supervised Vision
  Transformer" (Camporese, Izzo, Ballan; 2022).
- thesis: "Architectures and Training for Visual Understanding" (Touvron; PhD thesis, 2022).

Accuracies, ap*, miou and macc are in percent; of ssl_mse_* and sec_per_batch smaller is better.
"""

import json
import math
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from ...jobs.documents import Document, from_plain
from ...jobs.errors import BadInput, NothingMatched, suggest
from ...jobs.values import field
from ..stats.difference import Difference, against_one, welch_of_summaries

SCHEMA_VERSION = 1
# Which epoch's accuracy a paper prints. The published code of DRLoc logs the maximum over epochs on
# the set that it reports, RelViT's keeps the best checkpoint by that set; the thesis takes the last
# epoch (section 6.3.4).
SELECTION = {"drloc": "best", "relvit": "best", "thesis": "last"}
PAPERS = tuple(SELECTION)


class Published(Document, frozen=True, kw_only=True, omit_defaults=False):
    """One printed number."""

    id: str
    """Of the record."""
    table: str
    """In the paper."""
    dataset: str
    backbone: str
    method: str
    """Such as supervised, drloc or relvit."""
    protocol: str | None
    """How it was trained, such as from scratch or pre-trained; null where the number is of no
    training.
    """
    epochs: int | None
    """Of training, as the paper says."""
    metric: str
    mean: float
    """As printed."""
    std: float | None = None
    """As printed; null where there is none."""
    n_seeds: int | None = None
    """Null where the source does not say."""
    decimals: int = 2
    """As many are printed."""
    min: float | None = None
    """The smallest over seeds, where it is printed."""
    max: float | None = None
    """The largest over seeds, where it is printed."""
    seed0: float | None = None
    """Of a study over seeds, of which seed 0 is none."""
    recipe: str | None = None
    """The recipe of the source."""
    pretrain: dict[str, Any] | None = None
    """What the model was trained on before, and how."""
    baseline: str | None = None
    """The record that it is measured against."""
    reported_delta: float | None = None
    """The improvement as printed."""
    variant: dict[str, Any] = field(default_factory=dict)
    """What tells the record from others of its kind, such as lambda."""
    ssl_tasks: tuple[str, ...] = ()
    """Tasks of the auxiliary head."""
    params_m: float | None = None
    """Parameters of the model in millions, as printed beside the number."""
    flops_g: float | None = None
    """GFLOPs an image, as printed beside the number."""
    images_per_s: float | None = None
    """Of inference, as printed beside the number."""
    at_epoch: int | None = None
    """The epoch of the number, where it is not the last."""
    cited: bool = False
    """Whether the paper has it from another one."""
    doubtful: str = ""
    """Why the record needs a check before it is used."""
    note: str = ""
    """What else is to be known of it."""

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
    if paper not in PAPERS:
        raise BadInput(f"unknown paper {paper!r}. {suggest(paper, PAPERS)}")
    lines = (
        files("vtjobs.jobs").joinpath("catalogue", "papers", f"{paper}.jsonl").read_bytes()
    ).splitlines()
    found = (from_plain(json.loads(line), Published) for line in lines)
    return {record.id: record for record in found}


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


class AuditedGain(Document, frozen=True, kw_only=True, omit_defaults=False):
    """A gain of a paper, computed anew from the printed means."""

    schema_version: int
    id: str
    """Of the record."""
    baseline: str
    """Of the record that it is measured against."""
    table: str
    """In the paper."""
    dataset: str
    backbone: str
    method: str
    """Such as drloc or relvit."""
    epochs: int | None
    """Of training, as the paper says."""
    metric: str
    baseline_method: str
    """Of the record that it is measured against."""
    mean: float
    """As printed."""
    std: float | None
    """As printed; null where there is none."""
    n: int | None
    """Runs; null where the source does not say."""
    mean_baseline: float
    """As printed."""
    std_baseline: float | None
    """As printed; null where there is none."""
    n_baseline: int | None
    """Runs; null where the source does not say."""
    printed: float | None
    """The gain as printed; null where none is."""
    recomputed: float
    """The difference of the printed means."""
    agrees: bool | None
    """Whether the two agree within rounding; null where no gain is printed."""
    p: float | None
    """Of the gain; null where the printed numbers allow no test."""
    p_worst: float | None
    """The largest p that rounding and ddof 0 leave open."""
    interval: tuple[float, float] | None
    """95 % confidence interval of the gain."""
    why_not: str
    """Why there is no test."""
    doubtful: str
    """Why a record needs a check before it is used."""


def audit(name: str) -> list[AuditedGain]:
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
        interval = tested.interval
        found.append(
            AuditedGain(
                schema_version=SCHEMA_VERSION,
                id=record.id,
                baseline=baseline.id,
                table=record.table,
                dataset=record.dataset,
                backbone=record.backbone,
                method=record.method,
                epochs=record.epochs,
                metric=record.metric,
                baseline_method=baseline.method,
                mean=record.mean,
                std=record.std,
                n=record.n_seeds,
                mean_baseline=baseline.mean,
                std_baseline=baseline.std,
                n_baseline=baseline.n_seeds,
                printed=printed,
                recomputed=round(gain, 10),
                # Printed numbers are multiples of a hundredth; the slack is that of floats.
                agrees=None if printed is None else abs(gain - printed) < record.half_unit,
                p=tested.p,
                p_worst=_worst(record, baseline),
                interval=(interval.low, interval.high) if interval else None,
                why_not=tested.why_not,
                doubtful=record.doubtful or baseline.doubtful,
            )
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
    return largest(
        _test(record, baseline, mean=baseline.mean + least, std=std, std_baseline=other).p
        for std in deviations(record)
        for other in deviations(baseline)
    )


def deviations(record: Published) -> tuple[float | None, ...]:
    """Return the least and the largest sample deviation that may stand behind a printed one.

    It is rounded, and may have ddof 0. As a deviation grows, Welch's p first falls, where the
    degrees of freedom grow faster than the error, and then rises: so it is largest at an end, and
    over two deviations at a corner.
    """
    n = record.n_seeds
    if record.std is None or n is None or n < 2:
        return (record.std,)
    least = max(0.0, record.std - record.half_unit)
    return least, (record.std + record.half_unit) * math.sqrt(n / (n - 1))


def largest(found: Iterable[float | None]) -> float | None:
    """Return the largest p, or None where nothing could be tested."""
    return max((p for p in found if p is not None), default=None)

"""From records to runs: one for each cell and seed, with its scores by epoch."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import BadInput, Problem, suggest
from ..grid.seeds import MAX_SEED
from ..names import one_line
from ..run.metrics import METRICS
from ..values import Value
from .layout import (
    LABELS,
    NO_RECIPE,
    Layout,
    Metric,
    columns_text,
    looks_like_a_metric,
)
from .record import Record, Scalar

# More mistakes than these are one mistake.
MOST_PROBLEMS = 8
MAX_EPOCH = 2**31 - 1
# MLflow's database has the largest number there is in the place of an infinite one.
LARGEST = 1e100
_LONGEST = 200
_LONGEST_NAME = 32


class Key(Value, frozen=True):
    """What one run is of."""

    labels: tuple[str, ...]
    """In the order of LABELS."""
    axes: tuple[tuple[str, str], ...]
    """Names and values."""
    seed: int


@dataclass(slots=True, kw_only=True)
class FoundRun:
    """A run as files have it."""

    source: str
    """The first place that tells of it."""
    first: Record
    """What stands there."""
    scores: dict[tuple[int, Metric], float] = field(default_factory=dict)
    """Epoch, set and metric -> value."""
    diverged: bool = False
    """Whether a value was not finite."""
    places: dict[tuple[int, Metric], Record] = field(default_factory=dict)
    """Epoch, set and metric -> where it stands."""

    @property
    def last_epoch(self) -> int:
        """The last epoch that has a score; 0: there is none."""
        return max((epoch for epoch, _ in self.scores), default=0)


def runs_of(records: Sequence[Record], layout: Layout) -> dict[Key, FoundRun]:
    """Return the runs that records tell of, in their order.

    Raises:
        BadInput: a label or a seed is missing, a value is no number, two records say different
            things of the same epoch of a run, or none has a metric. The message has the places.
    """
    found: dict[Key, FoundRun] = {}
    problems = _unknown_columns(records, layout)
    words = _words(records, layout)
    for record in [] if problems else records:
        try:
            _take_in(found, record, layout, words)
        except BadInput as error:
            # The same in every line is said once.
            told = {problem.message for problem in problems}
            problems += [one for one in error.problems if one.message not in told]
        if len(problems) > MOST_PROBLEMS:
            problems[MOST_PROBLEMS:] = [Problem(message="and more of the kind")]
            break
    problems = problems or _units(found) or _unused_scales(found, layout)
    if not problems and not any(run.scores or run.diverged for run in found.values()):
        message = "no metric was found"
        fix = f"Name one: --metric top1=COLUMN. {columns_text(records)}"
        problems = [Problem(message=message, fix=fix)]
    if problems:
        raise BadInput(problems)
    return found


def _unknown_columns(records: Sequence[Record], layout: Layout) -> list[Problem]:
    """Return the named columns that no record has."""
    known = {name for record in records for name in layout.filled(record)}
    known |= {str(record.values["metric"]) for record in records if "metric" in record.values}
    return [
        Problem(message=f"{option}: there is no such column", fix=suggest(column, known))
        for option, column in layout.named_columns()
        if column not in known
    ]


def _unused_scales(found: Mapping[Key, FoundRun], layout: Layout) -> list[Problem]:
    """Return the factors of metrics that no run has."""
    metrics = {metric for run in found.values() for _, (_, metric) in run.places}
    return [
        Problem(message=f"--scale {name}: there is no such metric", fix=suggest(name, metrics))
        for name in layout.scales
        if name not in metrics
    ]


def _words(records: Sequence[Record], layout: Layout) -> set[str]:
    """Return the columns that are named like metrics and have no number anywhere, such as the name
    of a loss.
    """
    named, numbers = set[str](), set[str]()
    for record in records:
        for column, value in layout.filled(record).items():
            if looks_like_a_metric(column):
                named.add(column)
                if _is_number(value):
                    numbers.add(column)
    return named - numbers


def _is_number(value: Scalar) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    except OverflowError:
        # A number of hundreds of digits.
        pass
    return True


def _take_in(
    found: dict[Key, FoundRun], record: Record, layout: Layout, words: Collection[str]
) -> None:
    key = _key(record, layout)
    run = found.setdefault(key, FoundRun(source=record.where, first=record))
    epoch = _epoch(record, layout)
    scores = layout.scores(record, words)
    if _is_whole(record, layout) and record is not run.first and not (scores and run.places):
        # One of the two failed, and would be lost.
        raise _twice(record, run.first, layout, f"seed {key.seed}")
    for metric, text in scores.items():
        _check_name(record, metric)
        value = _number(record, "/".join(metric), text) * layout.scales.get(metric[1], 1.0)
        place = (epoch, metric)
        before = run.places.setdefault(place, record)
        if before is not record:
            at = f" at epoch {epoch}" if epoch else ""
            raise _twice(record, before, layout, f"{'/'.join(metric)}{at} of seed {key.seed}")
        if abs(value) <= LARGEST:
            run.scores[place] = value
        else:
            run.diverged = True


def _key(record: Record, layout: Layout) -> Key:
    needed = [name for name in (*LABELS, "seed") if name != "recipe"]
    if missing := [name for name in needed if layout.text(record, name) is None]:
        raise _missing(record, missing, layout)
    labels = tuple(_label(record, layout, name) for name in LABELS)
    axes = tuple((name, _axis(record, layout, name)) for name in layout.axes)
    seed = _whole(record, "seed", _given(record, layout, "seed"), MAX_SEED)
    return Key(labels, axes, seed + layout.seed_offset)


def _given(record: Record, layout: Layout, name: str) -> Scalar:
    """Return what a record says of a label that it has."""
    text = layout.text(record, name)
    assert text is not None
    return text


def _label(record: Record, layout: Layout, name: str) -> str:
    text = layout.text(record, name)
    # Without a recipe it is said to be imported; all other labels are there by now.
    return NO_RECIPE if text is None else _shown(record, name, text)


def _axis(record: Record, layout: Layout, name: str) -> str:
    text = layout.filled(record).get(name)
    return "—" if text is None else _shown(record, name, text)


def _shown(record: Record, name: str, value: Scalar) -> str:
    text = one_line(str(value)).strip()
    longest = 64 if name == "recipe" else _LONGEST
    if not text or len(text) > longest:
        raise _wrong(record, f"{name}: 1…{longest} characters are expected, got {len(text)}")
    return text


def _epoch(record: Record, layout: Layout) -> int:
    text = layout.text(record, "epoch")
    if text is None:
        return _whole(record, "epoch", record.epoch or 0, MAX_EPOCH)
    return _whole(record, "epoch", text, MAX_EPOCH)


def _whole(record: Record, name: str, text: Scalar, most: int) -> int:
    number = _number(record, name, text)
    if not math.isfinite(number) or number != int(number) or not 0 <= number <= most:
        raise _wrong(record, f"{name}: whole number 0…{most} is expected, got {text!r}")
    return int(number)


def _number(record: Record, name: str, value: Scalar) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except ValueError:
        raise _wrong(record, f"{name}: a number is expected, got {str(value)[:40]!r}") from None


def _check_name(record: Record, metric: Metric) -> None:
    for name in metric:
        if not name.replace("-", "_").isidentifier() or len(name) > _LONGEST_NAME:
            message = f"{name!r} is no name of a set or a metric"
            raise _wrong(record, message, "Letters, digits and _ are allowed")


def _missing(record: Record, names: Sequence[str], layout: Layout) -> BadInput:
    if layout.in_path(record) is None:
        fix = "Or leave such records out: --skip-incomplete"
        return _wrong(record, "the path does not end as --path says", fix)
    name = names[0]
    fix = f"Name its column: --column {name}=COLUMN. Or give all the same: --value {name}=VALUE"
    return _wrong(record, f"no {', '.join(names)}", f"{fix}. {columns_text([record])}")


def _is_whole(record: Record, layout: Layout) -> bool:
    """Whether a record is all that is said of a run: not of one epoch, set or metric."""
    parts = (layout.text(record, "epoch"), layout.text(record, "set"), record.values.get("metric"))
    return record.epoch is None and all(part is None for part in parts)


def _twice(record: Record, before: Record, layout: Layout, what: str) -> BadInput:
    known = {*layout.metrics.values(), *map("/".join, layout.scores(record)), *METRICS}
    differing = sorted(
        name
        for name in (record.values.keys() | before.values.keys()) - known
        if record.values.get(name) != before.values.get(name)
    )
    fix = "Remove one of them"
    if differing:
        fix = f"They differ in {', '.join(differing[:6])}. Tell them apart: --axis COLUMN"
    return _wrong(record, f"{what} stands at {before.where}, too", fix)


def _wrong(record: Record, message: str, fix: str = "") -> BadInput:
    return BadInput(Problem(message=message, file=record.where, fix=fix))


def _units(found: dict[Key, FoundRun]) -> list[Problem]:
    """Return accuracies that cannot be percent."""
    values: dict[str, list[float]] = {}
    for run in found.values():
        for (_, (_, metric)), value in run.scores.items():
            if metric.removeprefix("ema_") in ("top1", "top5"):
                values.setdefault(metric, []).append(value)
    problems = []
    for metric, numbers in values.items():
        if max(numbers) <= 1.0 and max(numbers) > 0.0:
            message = f"{metric} is at most {max(numbers):g}: a fraction, and vtjobs has percent"
            problems.append(Problem(message=message, fix=f"Give --scale {metric}=100"))
        elif max(numbers) > 100.0 or min(numbers) < 0.0:
            message = f"{metric} is {min(numbers):g}…{max(numbers):g}, and percent are 0…100"
            problems.append(Problem(message=message, fix="Is it another column?"))
    return problems

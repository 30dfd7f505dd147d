"""From records to runs: one for each cell and seed, with its scores by epoch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import BadInput, Problem
from ..grid.own_function import METRICS
from ..grid.seeds import MAX_SEED
from ..names import one_line
from .layout import LABELS, NO_RECIPE, Layout, Metric, columns_text
from .record import Record, Value

# More mistakes than these are one mistake.
MOST_PROBLEMS = 8
MAX_EPOCH = 2**31 - 1
_LONGEST = 200
_LONGEST_NAME = 32


@dataclass(frozen=True, slots=True)
class Key:
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
    problems: list[Problem] = []
    for record in records:
        try:
            _take_in(found, record, layout)
        except BadInput as error:
            # The same in every line is said once.
            told = {problem.message for problem in problems}
            problems += [one for one in error.problems if one.message not in told]
        if len(problems) > MOST_PROBLEMS:
            problems[MOST_PROBLEMS:] = [Problem(message="and more of the kind")]
            break
    problems = problems or _units(found)
    if not problems and not any(run.scores or run.diverged for run in found.values()):
        message = "no metric was found"
        fix = f"Name one: --metric top1=COLUMN. {columns_text(records)}"
        problems = [Problem(message=message, fix=fix)]
    if problems:
        raise BadInput(problems)
    return found


def _take_in(found: dict[Key, FoundRun], record: Record, layout: Layout) -> None:
    key = _key(record, layout)
    run = found.setdefault(key, FoundRun(source=record.where))
    epoch = _epoch(record, layout)
    for metric, text in layout.scores(record).items():
        _check_name(record, metric)
        value = _number(record, "/".join(metric), text) * layout.scales.get(metric[1], 1.0)
        place = (epoch, metric)
        before = run.places.setdefault(place, record)
        if before is not record:
            raise _twice(record, before, layout, key.seed, place)
        if math.isfinite(value):
            run.scores[place] = value
        else:
            run.diverged = True


def _key(record: Record, layout: Layout) -> Key:
    needed = [name for name in (*LABELS, "seed") if name != "recipe"]
    if missing := [name for name in needed if layout.text(record, name) is None]:
        raise _missing(record, missing, layout)
    labels = tuple(_label(record, layout, name) for name in LABELS)
    axes = tuple((name, _axis(record, layout, name)) for name in layout.axes)
    seed = _whole(record, "seed", layout.text(record, "seed") or 0, MAX_SEED)
    return Key(labels, axes, seed + layout.seed_offset)


def _label(record: Record, layout: Layout, name: str) -> str:
    text = layout.text(record, name)
    # Without a recipe it is said to be imported; all other labels are there by now.
    return NO_RECIPE if text is None else _shown(record, name, text)


def _axis(record: Record, layout: Layout, name: str) -> str:
    text = layout.filled(record).get(name)
    return "—" if text is None else _shown(record, name, text)


def _shown(record: Record, name: str, value: Value) -> str:
    text = one_line(str(value)).strip()
    longest = 64 if name == "recipe" else _LONGEST
    if not text or len(text) > longest:
        raise _wrong(record, f"{name}: 1…{longest} characters are expected, got {len(text)}")
    return text


def _epoch(record: Record, layout: Layout) -> int:
    text = layout.text(record, "epoch")
    if text is None:
        return record.epoch or 0
    return _whole(record, "epoch", text, MAX_EPOCH)


def _whole(record: Record, name: str, text: Value, most: int) -> int:
    number = _number(record, name, text)
    if not math.isfinite(number) or number != int(number) or not 0 <= number <= most:
        raise _wrong(record, f"{name}: whole number 0…{most} is expected, got {text!r}")
    return int(number)


def _number(record: Record, name: str, value: Value) -> float:
    try:
        return float(value)
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


def _twice(
    record: Record, before: Record, layout: Layout, seed: int, place: tuple[int, Metric]
) -> BadInput:
    epoch, metric = place
    known = {*layout.metrics.values(), *map("/".join, layout.scores(record)), *METRICS}
    differing = sorted(
        name
        for name in (record.values.keys() | before.values.keys()) - known
        if record.values.get(name) != before.values.get(name)
    )
    fix = "Remove one of them"
    if differing:
        fix = f"They differ in {', '.join(differing[:6])}. Tell them apart: --axis COLUMN"
    at = f" at epoch {epoch}" if epoch else ""
    message = f"{'/'.join(metric)}{at} of seed {seed} stands at {before.where}, too"
    return _wrong(record, message, fix)


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


def sources(runs: Iterable[FoundRun]) -> list[str]:
    """Return the places of runs, each once."""
    return list(dict.fromkeys(run.source for run in runs))

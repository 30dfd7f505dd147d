"""Which column is what: labels, seed, epoch and metrics."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from ..errors import BadInput, Problem, one_of, suggest
from ..run.metrics import METRICS
from ..values import Value, field
from .record import Record, Scalar

# What names the cell of a run. Without a recipe it is said to be imported.
LABELS = ("backbone", "dataset", "head", "recipe")
COLUMNS = (*LABELS, "seed", "epoch", "set")
NO_RECIPE = "imported"

Metric = tuple[str, str]
"""Set and metric, such as ("test", "top1")."""

# A table with a line for each value has these two.
LONG = ("metric", "value")
_ENDS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt", ".wandb", ".db")
_KNOWN = tuple(name for name in METRICS if name != "n")


class Layout(Value, frozen=True, kw_only=True):
    """How records are read."""

    columns: dict[str, str] = field(default_factory=dict)
    """Label, `seed`, `epoch` or `set` -> the column that has it, if not one of that name."""
    values: dict[str, str] = field(default_factory=dict)
    """The same -> the value that all records have."""
    metrics: dict[Metric, str] = field(default_factory=dict)
    """Metric -> the column that has it; empty: columns that are named like metrics."""
    axes: tuple[str, ...] = ()
    """Columns by which cells differ beside their labels."""
    scales: dict[str, float] = field(default_factory=dict)
    """Metric -> what its values are multiplied by."""
    set_name: str = "test"
    """Of metrics that name none."""
    names: re.Pattern[str] | None = None
    """What the ends of paths say; see `names_in_paths`."""
    seed_offset: int = 0
    """Added to every seed."""

    def text(self, record: Record, label: str) -> Scalar | None:
        """Return what a record says of a label; None: nothing."""
        if label in self.values:
            return self.values[label]
        return self.filled(record).get(self.columns.get(label, label))

    def filled(self, record: Record) -> dict[str, Scalar]:
        """Return a record's values, with those that its path gives."""
        return record.values | (self.in_path(record) or {})

    def in_path(self, record: Record) -> dict[str, Scalar] | None:
        """Return what the end of a record's path says; None where it is not as the pattern says."""
        if self.names is None:
            return {}
        whole = PurePath(record.source)
        # Of a file its name without the end, else the folder that it lies in.
        own = whole.with_suffix("") if whole.suffix in _ENDS else whole
        for path in (own, whole.parent):
            if found := self.names.search(path.as_posix()):
                return {**found.groupdict()}
        return None

    def scores(self, record: Record, without: Collection[str] = ()) -> dict[Metric, Scalar]:
        """Return what a record says of each metric.

        Args:
            record: of a run.
            without: columns that are no metrics, although they are named like some.

        Raises:
            BadInput: two columns are of one metric.
        """
        found = self.filled(record)
        where = str(self.text(record, "set") or self.set_name)
        scores: dict[Metric, Scalar] = {}
        columns: dict[Metric, str] = {}
        for (named, metric), column, value in self._metrics_in(found):
            key = (named or where, metric)
            if column in without and not self.metrics:
                continue
            if key in scores:
                message = f"{'/'.join(key)} stands in {columns[key]} and in {column}"
                fix = f"Say which counts: --metric {'/'.join(key)}=COLUMN"
                raise BadInput(Problem(message=message, file=record.where, fix=fix))
            scores[key], columns[key] = value, column
        return scores

    def _metrics_in(self, found: Mapping[str, Scalar]) -> Iterator[tuple[Metric, str, Scalar]]:
        """Yield each metric, the column that it is named by, and its value."""
        if all(column in found for column in LONG):
            column, value = str(found["metric"]), found["value"]
            chosen = [key for key, name in self.metrics.items() if name == column]
            for key in chosen if self.metrics else [_named(column)]:
                yield key, column, value
        elif self.metrics:
            for key, column in self.metrics.items():
                if column in found:
                    yield key, column, found[column]
        else:
            for column, value in found.items():
                if looks_like_a_metric(column):
                    yield _named(column), column, value

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """Yield the options that name columns, each with the column."""
        for label, column in self.columns.items():
            yield f"--column {label}={column}", column
        for (_, metric), column in self.metrics.items():
            yield f"--metric {metric}={column}", column
        for column in self.axes:
            yield f"--axis {column}", column


def looks_like_a_metric(column: str) -> bool:
    """Whether a column is taken for a metric without being named as one."""
    return column.rpartition("/")[2].removeprefix("ema_") in _KNOWN


def _named(column: str) -> Metric:
    """Return the set, or nothing, and the metric of `val/top1` or `top1`."""
    named, _, metric = column.rpartition("/")
    return named, metric


def names_in_paths(pattern: str) -> re.Pattern[str]:
    """Return what finds names in the end of a path.

    Args:
        pattern: such as `{backbone}/{dataset}-{head}/seed{seed}`; a name stands for one or more
            characters other than a slash.

    Raises:
        BadInput: it has no name, or one twice.
    """
    parts = re.split(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", pattern.strip("/"))
    names = parts[1::2]
    if not names or len(set(names)) < len(names):
        raise BadInput(
            f"--path {pattern}: names in braces are expected, each once."
            " Example: '{backbone}/{dataset}/{head}/seed{seed}'"
        )
    text = "".join(
        f"(?P<{part}>[^/]+?)" if index % 2 else re.escape(part) for index, part in enumerate(parts)
    )
    return re.compile(rf"(?:^|/){text}$")


def pairs(given: Iterable[str], option: str, known: Sequence[str]) -> dict[str, str]:
    """Return the pairs NAME=VALUE of an option.

    Args:
        given: on the command line.
        option: its name, for errors.
        known: the names that it takes; empty: any.

    Raises:
        BadInput: one is no pair, or its name is unknown.
    """
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name or not value:
            raise BadInput(f"{option} {one}: NAME=VALUE is expected")
        if known and name not in known:
            raise BadInput(f"{option} {one}: {name} is unknown. {suggest(name, known)}")
        found[name] = value
    return found


def metrics_of(given: Iterable[str]) -> dict[Metric, str]:
    """Return the metrics of options `[SET/]METRIC=COLUMN`; an empty set is that of the record.

    Raises:
        BadInput: one is no pair.
    """
    return {_named(name): column for name, column in pairs(given, "--metric", ()).items()}


def scales_of(given: Iterable[str]) -> dict[str, float]:
    """Return the factors of options METRIC=FACTOR.

    Raises:
        BadInput: one is no pair, or its factor no number above 0.
    """
    found: dict[str, float] = {}
    for metric, text in pairs(given, "--scale", ()).items():
        try:
            found[metric] = float(text)
        except ValueError:
            found[metric] = math.nan
        if not 0 < found[metric] < math.inf:
            raise BadInput(f"--scale {metric}={text}: a number above 0 is expected")
    return found


def axes_of(given: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of options COLUMN.

    Raises:
        BadInput: one is called like a label, which cells differ by anyway.
    """
    found = tuple(dict.fromkeys(given))
    if taken := [name for name in found if name in COLUMNS]:
        raise BadInput(f"--axis {taken[0]}: cells differ by it anyway")
    return found


def columns_text(records: Sequence[Record]) -> str:
    """Return the columns that records have, for an error's fix."""
    return f"Columns: {one_of({name for record in records for name in record.values}, most=30)}"

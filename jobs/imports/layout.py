"""Which column is what: labels, seed, epoch and metrics."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from ..errors import BadInput, one_of, suggest
from ..grid.own_function import METRICS
from .record import Record, Value

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
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

    def text(self, record: Record, label: str) -> Value | None:
        """Return what a record says of a label; None: nothing."""
        if label in self.values:
            return self.values[label]
        return self.filled(record).get(self.columns.get(label, label))

    def filled(self, record: Record) -> dict[str, Value]:
        """Return a record's values, with those that its path gives."""
        return record.values | (self.in_path(record) or {})

    def in_path(self, record: Record) -> dict[str, Value] | None:
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

    def scores(self, record: Record) -> dict[Metric, Value]:
        """Return what a record says of each metric."""
        found = self.filled(record)
        where = str(self.text(record, "set") or self.set_name)
        if self.metrics:
            return {key: found[column] for key, column in self.metrics.items() if column in found}
        if all(column in found for column in LONG):
            return {(where, str(found["metric"])): found["value"]}
        return {
            (named or where, metric): value
            for column, value in found.items()
            for named, _, metric in [column.rpartition("/")]
            if metric.removeprefix("ema_") in _KNOWN
        }


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


def metrics_of(given: Iterable[str], set_name: str) -> dict[Metric, str]:
    """Return the metrics of options `[SET/]METRIC=COLUMN`.

    Raises:
        BadInput: one is no pair.
    """
    found: dict[Metric, str] = {}
    for name, column in pairs(given, "--metric", ()).items():
        named, _, metric = name.rpartition("/")
        found[named or set_name, metric] = column
    return found


def columns_text(records: Sequence[Record]) -> str:
    """Return the columns that records have, for an error's fix."""
    return f"Columns: {one_of({name for record in records for name in record.values}, most=30)}"

"""Curves as one table: a line for each value, as CSV or as Parquet with typed columns."""

from pathlib import Path
from typing import Any

from ...jobs.atomic_files import write_over
from .csv_text import csv_text
from .exported_curves import Curve, Reading
from .parquet_bytes import parquet

_FIXED = ("name", "run_id", "seed", "set", "metric", "epoch", "value")


class TableWriter:
    """Writes `curves.csv` or `curves.parquet`, whole or not at all.

    Args:
        folder: made where it is not there.
        form: csv or parquet.

    Raises:
        ImportError: Parquet was asked for, and pyarrow is not installed.
    """

    writes_parts = True

    def __init__(self, folder: Path, form: str) -> None:
        if form == "parquet":
            import pyarrow.parquet  # noqa: F401
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"curves.{form}"
        self._curves: dict[str, tuple[Curve, list[Reading]]] = {}

    def write(self, curve: Curve) -> None:
        """Take in a curve, or what is new of it."""
        before = [] if curve.is_new else self._curves[curve.key][1]
        self._curves[curve.key] = curve, [*before, *curve.values]

    def close(self) -> None:
        """Write the file."""
        table = self._columns()
        if self.path.suffix == ".parquet":
            write_over(self.path, parquet(table))
            return
        lines = zip(*table.values(), strict=True)
        rows = [["" if value is None else value for value in line] for line in lines]
        write_over(self.path, csv_text(list(table), rows).encode())

    def _columns(self) -> dict[str, list[Any]]:
        labels = sorted({name for curve, _ in self._curves.values() for name in curve.labels})
        found: dict[str, list[Any]] = {name: [] for name in (*_FIXED, *labels)}
        for curve, values in self._curves.values():
            run_id = None if curve.seed is None else curve.key
            for value in values:
                set_name, _, metric = value.tag.partition("/")
                fixed = (curve.name, run_id, curve.seed, set_name, metric, value.epoch, value.value)
                for name, one in zip(_FIXED, fixed, strict=True):
                    found[name].append(one)
                for name in labels:
                    found[name].append(curve.labels.get(name))
        return found

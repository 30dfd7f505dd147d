"""Long data as CSV, or as Parquet with typed columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import write_over
from ...jobs.errors import BadInput
from ...jobs.values import fields
from ..findings.long_data import LongRow
from .csv_text import csv_text
from .parquet_bytes import parquet

_FIELDS = [name for name in fields(LongRow) if name != "axes"]


def columns(rows: Sequence[LongRow]) -> dict[str, list[Any]]:
    """Return heading -> a value per line: the fields, then a column for each axis of a grid."""
    found: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in _FIELDS}
    axes = sorted({axis for row in rows for axis in row.axes})
    return found | {axis: [row.axes.get(axis) for row in rows] for axis in axes}


def as_csv(rows: Sequence[LongRow]) -> str:
    """Return the lines as CSV; an empty field is a value that does not exist."""
    table = columns(rows)
    lines = zip(*table.values(), strict=True)
    return csv_text(
        list(table), [["" if value is None else value for value in line] for line in lines]
    )


def write(rows: Sequence[LongRow], path: Path) -> None:
    """Write a `.csv` or `.parquet` file, whole or not at all.

    Raises:
        BadInput: the name ends otherwise, its folder is not there, or pyarrow is not installed.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise BadInput(f"--long {path}: give a file that ends in .csv or .parquet, or - for CSV")
    if not path.parent.is_dir():
        raise BadInput(f"--long {path}: the folder {path.parent} does not exist. Create it first")
    write_over(path, _parquet(rows) if path.suffix == ".parquet" else as_csv(rows).encode())


def _parquet(rows: Sequence[LongRow]) -> bytes:
    try:
        return parquet(columns(rows))
    except ImportError:
        raise BadInput(
            "--long: Parquet files need pyarrow, which is not installed. "
            "Install it: pip install 'vtjobs[parquet]'. Or give a file that ends in .csv"
        ) from None

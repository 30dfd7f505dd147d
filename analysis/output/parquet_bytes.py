"""Columns as a Parquet file with types."""

from collections.abc import Mapping, Sequence
from typing import Any

_INTEGERS = ("seed", "epoch")
_NUMBERS = ("value",)
_TRUTHS = ("imported",)


def parquet(table: Mapping[str, Sequence[Any]]) -> bytes:
    """Return heading -> values as a Parquet file; whatever is no number is text.

    Raises:
        ImportError: pyarrow is not installed.
    """
    import pyarrow
    from pyarrow.parquet import write_table

    kinds = {
        **dict.fromkeys(_INTEGERS, pyarrow.int64()),
        **dict.fromkeys(_NUMBERS, pyarrow.float64()),
        **dict.fromkeys(_TRUTHS, pyarrow.bool_()),
    }
    arrays = {
        name: pyarrow.array(values, type=kinds.get(name, pyarrow.string()))
        for name, values in table.items()
    }
    stream = pyarrow.BufferOutputStream()
    write_table(pyarrow.table(arrays), stream)
    return bytes(stream.getvalue())

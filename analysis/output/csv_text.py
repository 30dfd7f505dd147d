"""Rows as the text of a CSV file that a spreadsheet can open without harm."""

import csv
import io
from collections.abc import Sequence

from ...jobs.names import printable

# A spreadsheet takes a cell that begins with one of these for a formula, or skips it to find one.
# As OWASP advises, such a text is put behind an apostrophe. Source: OWASP, CSV Injection.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_text(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a heading and rows as CSV, texts without control characters and formulas.

    Numbers, also a list of them in one cell, stay as they are.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in (heading, *rows))
    return stream.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if value.startswith(_FORMULA) and not _is_numbers(value) else text


def _is_numbers(text: str) -> bool:
    try:
        return bool([float(word) for word in text.split()])
    except ValueError:
        return False

"""Tables as people keep them: CSV, and JSON with an object for each run."""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import BadInput, Problem
from .record import Record, Value

# Longer files are no table of runs.
MAX_BYTES = 1 << 28


def read_csv(path: Path) -> Iterator[Record]:
    """Yield the lines of a table whose first line names the columns.

    Columns are separated by commas, semicolons or tabs, as the first line has them.

    Raises:
        BadInput: it is no such table; the message names the line.
    """
    lines = _text(path).splitlines()
    if not lines:
        raise BadInput(_problem(path, 1, "the file is empty"))
    rows = csv.reader(lines, delimiter=max(",;\t", key=lines[0].count), strict=True)
    try:
        names = [name.strip() for name in next(rows)]
        _check_names(path, names)
        for row in rows:
            where = f"{path}:{rows.line_num}"
            if len(row) > len(names):
                found = f"{len(row)} values, and {len(names)} columns"
                raise BadInput(_problem(path, rows.line_num, found))
            given: dict[str, Value] = {
                name: text
                for name, value in zip(names, row, strict=False)
                if (text := value.strip())
            }
            if given:
                yield Record(where=where, source=path, values=given)
    except csv.Error as error:
        raise BadInput(_problem(path, rows.line_num, f"no CSV: {error}")) from None


def read_json(path: Path) -> Iterator[Record]:
    """Yield the objects of a list, or of a file with one object in each line.

    An object in an object becomes columns with a dot: `{"config": {"lr": 1}}` has `config.lr`.

    Raises:
        BadInput: it is no such file; the message names the line, or the place in the list.
    """
    text = _text(path)
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        whole = None
        if not text.lstrip().startswith("{"):
            raise BadInput(_problem(path, error.lineno, f"no JSON: {error.msg}")) from None
    if isinstance(whole, dict):
        whole = [whole]
    found = _lines(path, text) if whole is None else enumerate(whole, 1)
    for number, one in found:
        if not isinstance(one, dict):
            raise BadInput(_problem(path, number, "an object is expected for each run"))
        yield Record(where=f"{path}:{number}", source=path, values=flat(one))


def flat(content: dict[str, Any], before: str = "") -> dict[str, Value]:
    """Return nested objects as columns; what is null or a list is left out."""
    found: dict[str, Value] = {}
    for key, value in content.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            found |= flat(value, f"{name}.")
        elif isinstance(value, bool):
            found[name] = str(value).lower()
        elif isinstance(value, str | int | float):
            found[name] = value
    return found


def _lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                raise BadInput(_problem(path, number, f"no JSON: {error.msg}")) from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(_problem(path, None, f"larger than {MAX_BYTES >> 20} MiB"))
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(_problem(path, None, f"not UTF-8 ({error.reason})")) from None


def _check_names(path: Path, names: list[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1 and name]
    if twice:
        raise BadInput(_problem(path, 1, f"two columns are named {twice[0]!r}"))


def _problem(path: Path, line: int | None, message: str) -> Problem:
    return Problem(message=message, file=str(path), line=line)

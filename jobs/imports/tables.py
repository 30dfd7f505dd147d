"""Tables as people keep them: CSV, and JSON with an object for each run."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import BadInput, Problem
from .record import Record, Scalar

# Longer files are no table of runs.
MAX_BYTES = 1 << 28


def read_csv(path: Path) -> Iterator[Record]:
    """Yield the lines of a table whose first line names the columns.

    Columns are separated by commas, semicolons or tabs, as the first line has them.

    Raises:
        BadInput: it is no such table; the message names the line.
    """
    text = _text(path)
    first = text.partition("\n")[0]
    if not text.strip():
        raise BadInput(_problem(path, 1, "the file is empty"))
    delimiter = max(",;\t", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [name.strip() for name in next(rows)]
        _check_names(path, names)
        for row in rows:
            where = f"{path}:{rows.line_num}"
            if len(row) > len(names):
                found = f"{len(row)} values, and {len(names)} columns"
                raise BadInput(_problem(path, rows.line_num, found))
            given: dict[str, Scalar] = {
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
        whole = _loaded(path, text)
    except BadInput:
        # A log: each line is an object of its own.
        if not text.lstrip().startswith("{"):
            raise
        found = _lines(path, text)
    else:
        found = enumerate([whole] if isinstance(whole, dict) else _as_list(path, whole), 1)
    for number, one in found:
        if not isinstance(one, dict):
            raise BadInput(_problem(path, number, "an object is expected for each run"))
        yield Record(where=f"{path}:{number}", source=path, values=flat(one))


def flat(content: dict[str, Any], before: str = "") -> dict[str, Scalar]:
    """Return nested objects as columns; what is null, empty or a list is left out."""
    found: dict[str, Scalar] = {}
    for key, value in content.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            found |= flat(value, f"{name}.")
        elif isinstance(value, bool):
            found[name] = str(value).lower()
        elif isinstance(value, str | int | float) and value != "":
            found[name] = value
    return found


def _lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, _loaded(path, line, number)


def _loaded(path: Path, text: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = _problem(path, line or error.lineno, f"no JSON: {error.msg}")
        raise BadInput(problem) from None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or thousands of brackets.
        raise BadInput(_problem(path, line, f"no JSON that can be read: {error}")) from None


def _as_list(path: Path, content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    raise BadInput(_problem(path, 1, "a list of objects is expected, or an object in each line"))


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

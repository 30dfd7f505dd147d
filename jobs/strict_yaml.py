"""Read a YAML file that a person wrote: strictly, and remembering where everything stands.

A subset of YAML 1.2: no tags, anchors, aliases or duplicate keys; one document; numbers as people
write them (`1e-3` is a number, `24:00:00` is text, `no` is text); limits on size, depth and count.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from .errors import BadInput, Problem
from .values import Value, field

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_NODES = 100_000

Path_ = tuple[str | int, ...]

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][-+]?[0-9]+)?\Z")
# Text that YAML 1.1 would have read as another number than the one a person sees.
_ODD_NUMBER = re.compile(r"[-+]?(0[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+|[0-9][0-9_]*_[0-9_]*)\Z")
_SPECIAL = {"": None, "~": None, "null": None, "true": True, "false": False}
_NOT_FINITE = {".nan", ".inf", "-.inf", "+.inf"}


class OddNumber(str):
    """A number written in a way that readers disagree about (012, 0x1F, 1_024)."""


class Document(Value, frozen=True, kw_only=True):
    """A parsed file: plain data, and the line of every key and item."""

    file: str
    data: Any
    lines: dict[Path_, int] = field(default_factory=dict)

    def line(self, path: Path_) -> int | None:
        """Return the line of the longest known part of `path`."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    def problem(self, path: Path_, message: str, fix: str = "") -> Problem:
        """Describe a mistake at `path`."""
        return Problem(
            file=self.file, line=self.line(path), key=dotted(path), message=message, fix=fix
        )


def dotted(path: Path_) -> str:
    """Write a path as people do: `heads[1].drloc.pairs`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read(path: Path) -> Document:
    """Read a file.

    Raises:
        BadInput: the file cannot be read, or is not the strict YAML described above.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadInput(Problem(file=file, message="no such file")) from None
    except IsADirectoryError:
        raise BadInput(Problem(file=file, message="is a directory, expected a file")) from None
    except OSError as error:
        raise BadInput(Problem(file=file, message=(error.strerror or str(error)).lower())) from None
    return parse(raw, file=file)


def parse(raw: bytes, *, file: str) -> Document:
    """Parse bytes as `read` does; `file` is the name used in messages."""
    if len(raw) > MAX_BYTES:
        raise BadInput(Problem(file=file, message="too large (limit 1 MiB)"))
    text = _decode(raw, file)
    _refuse_tabs(text, file)
    try:
        # The loader looks for characters that YAML forbids when it is made.
        loader = yaml.SafeLoader(text)
    except ReaderError as error:
        line = text[: error.position].count("\n") + 1
        message = f"character {chr(error.character)!r} is not allowed"
        raise BadInput(Problem(file=file, line=line, message=message)) from None
    reader = _Reader(loader, file)
    try:
        data = reader.document()
    except yaml.YAMLError as error:
        raise BadInput(_syntax_problem(error, file, loader.marks)) from None
    return Document(file=file, data=data, lines=reader.lines)


def _decode(raw: bytes, file: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        message = f"not valid UTF-8 (byte 0x{raw[error.start]:02x})"
        raise BadInput(Problem(file=file, line=line, message=message)) from None
    if "\0" in text:
        raise BadInput(
            Problem(file=file, line=text[: text.index("\0")].count("\n") + 1, message="NUL byte")
        )
    return text


def _refuse_tabs(text: str, file: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise BadInput(
                Problem(
                    file=file, line=number, message="tab used for indentation", fix="Use spaces."
                )
            )


def _syntax_problem(error: yaml.YAMLError, file: str, opened: list[Any]) -> Problem:
    """Describe what PyYAML found; `opened` are the marks of the brackets that are open there."""
    mark = getattr(error, "problem_mark", None)
    context = getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or error)
    if opened and "flow" in str(getattr(error, "context", "")):
        bracket = opened[-1].buffer[opened[-1].pointer]
        message = f"'{bracket}' opened here is never closed"
        if "stream end" not in problem:
            message = (
                f"expected ',' or '{']' if bracket == '[' else '}'}' after the '{bracket}' opened"
                " here"
            )
        return Problem(file=file, line=opened[-1].line + 1, message=message)
    at = context or mark
    return Problem(
        file=file, line=at.line + 1 if at else None, message=f"not valid YAML: {problem}"
    )


class _Reader:
    """Turn the events of one document into data; refuse what the module's docstring refuses."""

    def __init__(self, loader: yaml.SafeLoader, file: str) -> None:
        self.loader: Any = loader
        self.file = file
        self.lines: dict[Path_, int] = {}
        self.nodes = 0

    def fail(self, message: str, line: int, fix: str = "") -> BadInput:
        return BadInput(Problem(file=self.file, line=line, message=message, fix=fix))

    def _empty(self) -> BadInput:
        # `vtjobs init` alone would not replace this very file.
        fix = "For a grid file to start from: vtjobs init new-grid.yaml"
        return BadInput(Problem(file=self.file, message="empty", fix=fix))

    def document(self) -> Any:
        self.loader.get_event()
        if self.loader.check_event(yaml.StreamEndEvent):
            raise self._empty()
        self.loader.get_event()
        data = self.node((), 0)
        self.loader.get_event()
        count = 1
        while not self.loader.check_event(yaml.StreamEndEvent):
            count += self.loader.check_event(yaml.DocumentStartEvent)
            self.loader.get_event()
        if count > 1:
            raise BadInput(Problem(file=self.file, message=f"{count} YAML documents, expected 1"))
        if data is None:
            raise self._empty()
        return data

    def node(self, path: Path_, depth: int) -> Any:
        event = self.loader.get_event()
        line = event.start_mark.line + 1
        self.lines.setdefault(path, line)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.fail(f"more than {MAX_NODES:,} values", line)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.fail("YAML anchors and aliases are not allowed", line)
        if getattr(event, "tag", None) is not None:
            raise self.fail("YAML tags are not allowed", line)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, line)
        if depth >= MAX_DEPTH:
            raise self.fail(f"nested deeper than {MAX_DEPTH}", line)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path, depth)
        return self.mapping(path, depth)

    def sequence(self, path: Path_, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self.loader.check_event(yaml.SequenceEndEvent):
            items.append(self.node((*path, len(items)), depth + 1))
        self.loader.get_event()
        return items

    def mapping(self, path: Path_, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        first: dict[str, int] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            event = self.loader.get_event()
            line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent) or event.anchor or event.tag:
                raise self.fail("keys must be plain text", line)
            key = str(event.value)
            self.refuse_unstorable(key, line)
            if key in found:
                raise self.fail(f"{key!r} given twice (first at line {first[key]})", line)
            first[key] = line
            self.lines[(*path, key)] = line
            found[key] = self.node((*path, key), depth + 1)
        self.loader.get_event()
        return found

    def scalar(self, event: yaml.ScalarEvent, line: int) -> Any:
        text: str = event.value
        self.refuse_unstorable(text, line)
        if not event.implicit[0]:
            return text
        lowered = text.lower()
        if lowered in _SPECIAL:
            return _SPECIAL[lowered]
        if _INT.match(text):
            if len(text) > 40:
                raise self.fail("number too long", line)
            return int(text)
        if _ODD_NUMBER.match(text):
            return OddNumber(text)
        if _FLOAT.match(text) or lowered in _NOT_FINITE:
            return float(lowered.replace(".nan", "nan").replace(".inf", "inf"))
        return text

    def refuse_unstorable(self, text: str, line: int) -> None:
        """Refuse what escapes can write and neither a database nor a terminal can take."""
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise self.fail("NUL byte or unpaired surrogate in a quoted string", line)

"""Turn pydantic's findings into mistakes that name file, line, key and fix."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from .errors import Problem, suggest
from .strict_yaml import Document, OddNumber, Path_

Model = TypeVar("Model", bound=BaseModel)

_KINDS = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "string_type": "expected text",
    "bool_type": "expected true or false",
    "list_type": "expected a list",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "tuple_type": "expected a list",
    "finite_number": "must be a finite number",
    "too_short": "at least one is needed",
}
_NUMBERS = ("int_type", "int_from_float", "float_type")
_LISTS = ("list_type", "tuple_type")


def validate(
    model: type[Model],
    data: Any,
    document: Document,
    path: Path_ = (),
    *,
    homes: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Model | None, list[Problem]]:
    """Check `data`, which stands at `path` of the document.

    Args:
        model: what it must fit.
        data: the value.
        document: the file.
        path: where the value stands.
        homes: key -> the dotted path where the file has it; proposed where it stands elsewhere.

    Returns:
        The instance, or None and every mistake found.
    """
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, [
            problem_of(found, model, document, path, homes)
            for found in error.errors(include_url=False)
        ]


def problem_of(
    found: Any,
    model: type[BaseModel],
    document: Document,
    path: Path_,
    homes: Mapping[str, str] = MappingProxyType({}),
) -> Problem:
    """Return one of pydantic's findings as a mistake in the document."""
    # In angle brackets: the name of one form of a value that has several, which is no part of the
    # file.
    where = (*path, *(part for part in found["loc"] if not str(part).startswith("<")))
    kind = found["type"]
    if kind == "extra_forbidden":
        key = str(found["loc"][-1])
        if key.isdigit():
            # Of `{min_effect: 1,5}`.
            fix = "Write decimal numbers with a point, such as 1.5"
        elif key in homes:
            fix = _home(homes[key])
        else:
            fix = suggest(key, _fields(model, found["loc"][:-1]))
        return document.problem(where, f"unknown key {key!r}", fix)
    if kind == "missing":
        return document.problem(where, "is required")
    return document.problem(where, _message(found), _fix(found))


def _home(path: str) -> str:
    return f"Did you mean {path!r}?" if "." in path else f"{path} is a key of the file itself"


def _fields(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    fields = model.model_fields
    for part in loc:
        inner = _model_in(fields[part].annotation) if part in fields else None
        fields = inner.model_fields if inner else fields
    return list(fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation such as `list[Stage]` or `Literal["x"] | Backend`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _message(found: Any) -> str:
    kind, value = found["type"], found.get("input")
    if isinstance(value, OddNumber):
        return f"write plain decimal numbers, got {value}"
    if kind == "value_error":
        return str(found["ctx"]["error"])
    if kind in _KINDS:
        return f"{_KINDS[kind]}, got {describe(value)}"
    text = str(found["msg"]).replace("Input should be", "must be")
    return f"{text[0].lower()}{text[1:]}, got {describe(value)}"


def _fix(found: Any) -> str:
    """Return what to write where a value has the wrong type in an obvious way, or ""."""
    kind, value = found["type"], found.get("input")
    if kind in _NUMBERS and isinstance(value, str) and is_plain_number(value):
        return "Remove the quotes"
    if kind in _LISTS and isinstance(value, str | int | float) and not isinstance(value, bool):
        return f"Write [{value}]"
    return ""


def is_plain_number(text: str) -> bool:
    """Whether text, as between quotes, is a number as a file would have it."""
    return re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", text) is not None


def describe(value: Any) -> str:
    """Say what was found instead of what was expected."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"{str(value).lower()} (quote it if it is text)"
        case str():
            return f"text {value!r}"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            return str(value)

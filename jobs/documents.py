"""The one place where typed documents become JSON and are read back.

A document is a frozen record: its fields are the keys of its JSON, in their order, and the text
below a field says what it is. A field with a default is left out of the JSON where it has it. What
a newer version added is ignored by an older one.
"""

from collections.abc import Callable
from types import UnionType
from typing import Any, TypeVar, overload

import msgspec

from .errors import VtjobsError
from .values import Value


class Unfit(VtjobsError, ValueError):
    """What was read is not the document that it should be: damaged, or of another version."""


class Document(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What all documents have in common."""


T = TypeVar("T")


def to_plain(document: object) -> Any:
    """Return a document, or documents in lists and dicts, as what `json` can write.

    Whole numbers that are keys become text.
    """
    return msgspec.to_builtins(document, str_keys=True)


@overload
def from_plain(data: object, kind: type[T]) -> T: ...
@overload
def from_plain(data: object, kind: UnionType) -> Any: ...
def from_plain(data: object, kind: Any) -> Any:
    """Return a document that was read from JSON.

    Raises:
        Unfit: a key is missing or of another type; the message names it.
    """
    try:
        return msgspec.convert(data, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise Unfit(f"{getattr(kind, '__name__', kind)}: {error}") from None


def in_full(document: object) -> Any:
    """Return a document as `to_plain` does, with the fields that have their default."""
    if isinstance(document, Document):
        return {
            field.encode_name: in_full(getattr(document, field.name))
            for field in msgspec.structs.fields(document)
        }
    if isinstance(document, dict):
        return {key: in_full(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [in_full(value) for value in document]
    return to_plain(document)


def reader(kind: Any) -> Callable[[str], Any]:
    """Return a function that reads JSON text of one kind; of many short texts several times as fast
    as `json`.

    The function raises ValueError where a text is of another kind.
    """
    return msgspec.json.Decoder(kind).decode

"""What the frozen records have in common that commands import, stored or not (`documents`).

Mutable records are dataclasses, and so are those of the trainer's process, which PyTorch knows.
What `vtjobs --help` imports has named tuples: msgspec's import would be a tenth of its time.
"""

from typing import Any, TypeVar

import msgspec

# A field with a default that is made anew (`default_factory`), or whose key in JSON is a word of
# Python: `failure: str = field(name="class")`.
field = msgspec.field


class Value(msgspec.Struct, frozen=True):
    """A frozen record, equal to another of its class where all fields are equal.

    msgspec makes such a class in a fortieth of the time of `dataclasses`, and its objects in a
    third. A short command spent a tenth of its time on making classes.
    """


T = TypeVar("T")


def fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of a kind's fields, in their order."""
    return kind.__struct_fields__


def asdict(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a value by name, as they are."""
    return msgspec.structs.asdict(value)


def changed(value: T, /, **others: Any) -> T:
    """Return a value with others in some fields."""
    return msgspec.structs.replace(value, **others)  # type: ignore[type-var]

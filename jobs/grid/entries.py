"""The items of a grid's lists: a name, perhaps with settings, and the label it is shown by."""

import math
from pathlib import Path
from typing import Any

from ..run.spec import canonical
from ..strict_yaml import Path_
from ..values import Value, field

Given = dict[str, Any]
"""What a user wrote under one key: names and values are checked where they are resolved."""


class Entry(Value, frozen=True, kw_only=True):
    """One item of a list of the grid: a name with settings, and where it stands."""

    name: str
    settings: Given = field(default_factory=dict)
    path: Path_ = ()
    label: str = ""

    @property
    def setting(self) -> str:
        """What dotted paths call it: a lab's own head by its class alone."""
        return self.name.rpartition(":")[2]

    @property
    def key(self) -> tuple[str, str]:
        """What tells apart two entries, which may stand in different stages under one label."""
        return self.name, canonical(as_json(self.settings))


def entries(items: list[Any], path: Path_) -> list[Entry]:
    """Read `name` and `{name: {key: value}}` items.

    A repeated name is told apart by its settings.
    """
    found = []
    for index, item in enumerate(items):
        name, settings = next(iter(item.items())) if isinstance(item, dict) else (item, {})
        found.append((str(name), settings or {}, (*path, index)))
    names = [name for name, _, _ in found]
    short = [_short(name) for name in dict.fromkeys(names)]
    return [
        Entry(name=name, settings=settings, path=where, label=_label(name, settings, names, short))
        for name, settings, where in found
    ]


def _label(name: str, settings: Any, names: list[str], short: list[str]) -> str:
    if names.count(name) == 1 or not isinstance(settings, dict) or not settings:
        last = _short(name)
        return last if short.count(last) == 1 else name
    return f"{name}({','.join(f'{key}={value}' for key, value in settings.items())})"


def _short(name: str) -> str:
    """Return a folder's last part, the class of a lab's own head, and every other name as it is."""
    return name.rpartition(":")[2] if ":" in name else Path(name).name if "/" in name else name


def pick(name: str, listed: list[Entry], path: Path_) -> Entry:
    """Return the entry of this name or label, or a new one where the grid lists none."""
    for entry in listed:
        if name in (entry.label, entry.name):
            return entry
    return Entry(name=name, path=path, label=name)


def plain(values: Given) -> Given:
    """Make values safe for a cache key: what cannot be written as JSON is written as text."""
    return {
        key: repr(value) if isinstance(value, float) and value != value else as_json(value)
        for key, value in values.items()
    }


def as_json(value: Any) -> Any:
    # Most values of an axis; of others only the encoder knows.
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    try:
        canonical(value)
    except (TypeError, ValueError):
        return repr(value)
    return value

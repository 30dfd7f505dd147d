"""A setting's value as text."""

import json
from typing import Any


def as_written(value: Any) -> str:
    """Return a setting's value as a grid file would have it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_written, value))}]"
    return value if isinstance(value, str) else json.dumps(value)

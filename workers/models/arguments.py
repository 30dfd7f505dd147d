"""What timm's create_model hands to a model of ours."""

from typing import Any

# In a group matcher of timm's: part of the layer before.
LAST = (99999,)

_BOOKKEEPING = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")


def known(arguments: dict[str, Any]) -> dict[str, Any]:
    """Leave out timm's own bookkeeping; what is then unknown to a model must be refused by it."""
    return {name: value for name, value in arguments.items() if name not in _BOOKKEEPING}


def one_of(name: str, value: str, known_values: tuple[str, ...]) -> str:
    """Return the value of an argument.

    Raises:
        TypeError: it is none of those that are known.
    """
    if value not in known_values:
        raise TypeError(f"{name}: {value!r} is none of {', '.join(known_values)}")
    return value

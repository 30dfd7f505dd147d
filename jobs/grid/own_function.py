"""A lab's own loss, transform or metric: `train: {loss: "focal.py:focal"}`."""

import re
from typing import Any

from ..run.metrics import METRICS, NEIGHBOURS
from ..run.settings import OwnFunction
from .entries import Given, plain
from .mistakes import Mistakes
from .own_source import NotOwn, Sources, find, is_own

# What it is for -> the number of arguments that training gives by place.
FIRST = {"loss": 2, "transform": 0, "metric": 2}
# How well a linear layer tells apart random halves of classes, mean and deviation over the splits.
_SEPARABILITY = re.compile(r"separability(_conditioned)?(_std)?")


def is_taken(metric: str) -> bool:
    """Return whether a metric's name is one of vtjobs' own."""
    patterns = (NEIGHBOURS, _SEPARABILITY)
    return (
        metric in METRICS
        or metric.startswith("ema_")
        or any(pattern.fullmatch(metric) for pattern in patterns)
    )


def names_own(value: Any) -> bool:
    """Whether a recipe's value names a lab's own function: `file.py:name`, or it with arguments."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value))
    return isinstance(value, str) and is_own(value)


def find_function(key: str, value: Any, *, sources: Sources) -> OwnFunction:
    """Read the source of an own function and check the arguments that a grid gives to it.

    Args:
        key: what it is for, one of `FIRST`.
        value: as the grid has it: a name, or `{name: {argument: value}}`.
        sources: the files of the grid's own parts.

    Raises:
        NotOwn: there is no such function, or an argument is unknown, missing or no plain value.
    """
    if not names_own(value):
        raise NotOwn("write file.py:Name or module:Name")
    name, args = next(iter(value.items())) if isinstance(value, dict) else (value, {})
    given: Given = args or {}
    if not isinstance(given, dict) or plain(given) != given:
        raise NotOwn(f"{name}: arguments must be finite numbers, text, or lists of them")
    source = find(name, sources=sources, what=key, first=FIRST[key])
    try:
        source.check(frozenset(given))
    except NotOwn as error:
        raise NotOwn(f"{name}: {error}") from None
    return OwnFunction(name=name.rpartition(":")[2], args=given, source=source.text)


def find_metrics(given: list[Any], mistakes: Mistakes) -> list[OwnFunction]:
    """Return the metrics that a grid's `data.metrics` names; what is none is taken down."""
    found: dict[str, OwnFunction] = {}
    for index, value in enumerate(given):
        path = ("data", "metrics", index)
        try:
            function = find_function("metric", value, sources=mistakes.sources)
        except NotOwn as error:
            mistakes.at(path, str(error))
            continue
        if is_taken(function.name):
            mistakes.at(path, f"{function.name} is a metric of vtjobs. Rename the function")
        elif function.name in found:
            mistakes.at(path, f"{function.name} is listed twice. Rename one of the functions")
        found[function.name] = function
    return list(found.values())

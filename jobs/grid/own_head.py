"""A lab's own head: `file.py:Class` or `module:Class` in a grid."""

import ast

from ..errors import suggest
from .entries import Given
from .heads import HEADS
from .own_source import NotOwn, Source, Sources, source_of

# What every head may be told; the rest are the class's own arguments.
COMMON: Given = {"weight": 1.0, "tokens": "after_norm", "blocks": "last"}
# Words that change the backbone or the run where a head of ours says them.
RESERVED = frozenset(("labels", "positions", "mega", "shuffle", "patch_augment", "weight_schedule"))
_ALLOWED: dict[str, tuple[str, ...]] = {
    "tokens": ("before_norm", "after_norm"),
    "blocks": ("last", "all", "stages"),
}


def find(name: str, *, sources: Sources) -> Source:
    """Read the source of `module:Class` or `file.py:Class`.

    Args:
        name: as the grid has it.
        sources: the files of the grid's own parts.

    Raises:
        NotOwn: there is no such file or class, or it can be no head.
    """
    path, text, tree = sources.parse(name, what="head")
    wanted = name.rpartition(":")[2]
    if wanted in HEADS:
        raise NotOwn(f"{wanted} is the name of a built-in head. Rename the class")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if wanted not in classes:
        raise NotOwn(f"{path}: no class {wanted!r}. {suggest(wanted, classes)}")
    # The shapes of the token grids come first.
    return source_of(classes[wanted], text, path=path, first=1)


def parameters(settings: Given, source: Source) -> Given:
    """Return the parameters of an own head, checked against its class.

    Raises:
        NotOwn: one is unknown, or cannot be what it is.
    """
    values = {**COMMON, **settings}
    for key, value in settings.items():
        if key in _ALLOWED and value not in _ALLOWED[key]:
            raise NotOwn(f"{key}: must be one of {', '.join(_ALLOWED[key])}")
        if key not in COMMON and not source.takes(key):
            known = [*(source.arguments or ()), *COMMON]
            raise NotOwn(f"unknown key {key!r}. {suggest(key, known)}")
        if key in RESERVED:
            raise NotOwn(f"{key}: reserved by vtjobs. Rename the argument")
    if missing := sorted(source.required - settings.keys()):
        raise NotOwn(f"the class requires {', '.join(missing)}")
    weight = values["weight"]
    if (
        isinstance(weight, bool)
        or not isinstance(weight, int | float)
        or not 0 <= weight < float("inf")
    ):
        raise NotOwn("weight: must be a finite number, at least 0")
    return values

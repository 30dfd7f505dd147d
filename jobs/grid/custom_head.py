"""A lab's own head: found by `module:Class`, read and not run.

Its source goes with the run and into its name.
"""

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import suggest
from .entries import Given
from .heads import HEADS

MOST_BYTES = 100_000
# What every head may be told; the rest are the class's own arguments.
COMMON: Given = {"weight": 1.0, "tokens": "after_norm", "blocks": "last"}
# Words that change the backbone or the run where a head of ours says them.
RESERVED = frozenset(("labels", "positions", "mega", "shuffle", "patch_augment", "weight_schedule"))
_ALLOWED: dict[str, tuple[str, ...]] = {
    "tokens": ("before_norm", "after_norm"),
    "blocks": ("last", "all", "stages"),
}


class NotAHead(ValueError):
    """The name leads to no class that can be a head; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of a head."""

    text: str
    arguments: frozenset[str] | None
    """What its class takes by name beside the grids; None where it takes anything."""
    required: frozenset[str]
    """Those of them that have no default."""


def is_own(name: str) -> bool:
    """Whether a head's name leads to a class of the user's."""
    return ":" in name


def find(name: str, *, folder: Path) -> Source:
    """Read the source of `module:Class` or `file.py:Class`.

    Args:
        name: as the grid has it.
        folder: where relative names start; then Python's path.

    Raises:
        NotAHead: there is no such file or class, or the file is too large.
    """
    module, _, wanted = name.rpartition(":")
    path = _path(module, folder)
    if path.stat().st_size > MOST_BYTES:
        raise NotAHead(f"{path}: a head's file is at most {MOST_BYTES // 1000} kB")
    try:
        text = path.read_text("utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        # The last two: nested too deeply for the parser, which has no memory of its own left then.
        reason = str(error) or "nested too deeply"
        raise NotAHead(f"{path}: cannot be read as Python ({reason})") from None
    if wanted in HEADS:
        raise NotAHead(f"{wanted} is the name of a built-in head. Rename the class")
    if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        raise NotAHead(
            f"{path}: relative imports do not work, since only this file is sent along with a run"
        )
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if wanted not in classes:
        raise NotAHead(f"{path}: no class {wanted!r}. {suggest(wanted, classes)}")
    arguments, required = _arguments(classes[wanted], path)
    return Source(text=text, arguments=arguments, required=required)


def _path(module: str, folder: Path) -> Path:
    if not module.strip("./"):
        raise NotAHead("write file.py:Class or module:Class")
    if module.endswith(".py"):
        path = folder / Path(module).expanduser()
        if not path.is_file():
            raise NotAHead(f"{path}: no such file")
        return path
    relative = Path(*module.split("."))
    for root in (folder, *map(Path, sys.path)):
        for path in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
            if path.is_file():
                return path
    raise NotAHead(f"no module {module!r} next to the grid file or on Python's path")


def _arguments(found: ast.ClassDef, path: Path) -> tuple[frozenset[str] | None, frozenset[str]]:
    """Return what `__init__(self, grids, ...)` takes by name beside the first two, and what of it
    is required.
    """
    made = next(
        (
            node
            for node in found.body
            if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        ),
        None,
    )
    if made is None:
        raise NotAHead(f"{path}: class {found.name} has no __init__(self, grids, ...)")
    places = [argument.arg for argument in made.args.posonlyargs + made.args.args]
    if len(places) < 2:
        raise NotAHead(
            f"{path}: {found.name}.__init__ must take the token grids as its first argument"
        )
    named = [argument.arg for argument in made.args.kwonlyargs]
    required = places[2 : len(places) - len(made.args.defaults)] + [
        name for name, default in zip(named, made.args.kw_defaults, strict=True) if default is None
    ]
    known = None if made.args.kwarg is not None else frozenset([*places[2:], *named])
    return known, frozenset(required)


def parameters(name: str, settings: Given, source: Source) -> Given:
    """Return the parameters of an own head, checked against its class.

    Raises:
        NotAHead: one is unknown, or cannot be what it is.
    """
    values = {**COMMON, **settings}
    for key, value in settings.items():
        if key in _ALLOWED and value not in _ALLOWED[key]:
            raise NotAHead(f"{key}: must be one of {', '.join(_ALLOWED[key])}")
        if key not in COMMON and source.arguments is not None and key not in source.arguments:
            raise NotAHead(f"unknown key {key!r}. {suggest(key, [*source.arguments, *COMMON])}")
        if key in RESERVED:
            raise NotAHead(f"{key}: reserved by vtjobs. Rename the argument")
    if missing := sorted(source.required - settings.keys()):
        raise NotAHead(f"the class requires {', '.join(missing)}")
    weight = values["weight"]
    if (
        isinstance(weight, bool)
        or not isinstance(weight, int | float)
        or not 0 <= weight < float("inf")
    ):
        raise NotAHead("weight: must be a finite number, at least 0")
    return values

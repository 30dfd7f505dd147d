"""A lab's own part of a run, found by `file.py:Name` or `module:Name`: read, and not run.

Its source goes with the run and into its name.
"""

import ast
import os
import sys
from pathlib import Path

from ..errors import suggest
from ..values import Value
from ..workspace.stored_grid import stored_sources

MOST_BYTES = 100_000
_Function = ast.FunctionDef | ast.ClassDef


class NotOwn(ValueError):
    """The name leads to nothing that can be the part; the message says why."""


class Source(Value, frozen=True, kw_only=True):
    """The source of a part, and what its class or function takes."""

    text: str
    arguments: frozenset[str] | None
    """What it takes by name beside what vtjobs hands to it first; None where it takes anything."""
    required: frozenset[str]
    """Those of them that have no default."""

    def takes(self, argument: str) -> bool:
        """Whether an argument of this name can be given."""
        return self.arguments is None or argument in self.arguments

    def check(
        self,
        given: frozenset[str],
        *,
        provided: frozenset[str] = frozenset(),
        keys: frozenset[str] = frozenset(),
    ) -> None:
        """Check the names of the arguments that a grid gives.

        Args:
            given: by the grid.
            provided: what vtjobs gives, where the part takes it.
            keys: what the grid may say beside the arguments.

        Raises:
            NotOwn: one is unknown, one is vtjobs' to give, or one is missing.
        """
        for name in sorted(given):
            if name in provided:
                raise NotOwn(f"{name} is set by vtjobs")
            if not self.takes(name):
                known = (self.arguments or frozenset()) - provided | keys
                raise NotOwn(f"unknown key {name!r}. {suggest(name, sorted(known))}")
        if missing := sorted(self.required - given - provided):
            raise NotOwn(f"it requires {', '.join(missing)}")


def is_own(name: str) -> bool:
    """Whether a name in a grid leads to a lab's own part; paths may have a colon, too."""
    module, colon, found = name.rpartition(":")
    is_module = module.endswith(".py") or "/" not in module
    return bool(colon) and is_module and "/" not in found


class Sources:
    """The files that a grid's own parts are in: beside the grid, or stored with it."""

    def __init__(self, folder: Path) -> None:
        """Look in a folder, then on Python's path.

        Args:
            folder: of the grid's file. That of a submitted grid has the sources as they were.
        """
        self.folder = folder
        self.read: dict[str, str] = {}
        """What was read: the file or module as the grid names it -> its text."""
        self._stored = stored_sources(folder)

    def parse(self, name: str, *, what: str) -> tuple[Path, str, ast.Module]:
        """Read the file that `file.py:Name` or `module:Name` leads to.

        Args:
            name: as the grid has it.
            what: of the run it is, such as `head`.

        Returns:
            The file, its text, and the text parsed.

        Raises:
            NotOwn: there is no such file, it is too large, or it is not Python that can be sent
                along.
        """
        module = name.rpartition(":")[0]
        stored = self._stored.get(module)
        path = self.folder / module if stored is not None else _path(module, self.folder)
        if stored is None and path.stat().st_size > MOST_BYTES:
            raise NotOwn(f"{path}: a {what}'s file is at most {MOST_BYTES // 1000} kB")
        try:
            # Editors on Windows begin a file with a byte order mark.
            text = path.read_text("utf-8-sig") if stored is None else stored
            tree = ast.parse(text, path.name)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
            # The last two: nested too deeply for the parser, which has no memory of its own left
            # then.
            reason = str(error) or "nested too deeply"
            raise NotOwn(f"{path}: cannot be read as Python ({reason})") from None
        if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
            raise NotOwn(
                f"{path}: relative imports do not work, since only this file is sent along with a"
                " run"
            )
        self.read[module] = text
        return path, text, tree


def _path(module: str, folder: Path) -> Path:
    if not module.strip("./"):
        raise NotOwn("write file.py:Name or module:Name")
    if module.endswith(".py"):
        path = folder / os.path.expanduser(module)
        if not path.is_file():
            raise NotOwn(f"{path}: no such file")
        return path
    relative = Path(*module.split("."))
    for root in (folder, *map(Path, sys.path)):
        for path in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
            if path.is_file():
                return path
    raise NotOwn(f"no module {module!r} next to the grid file or on Python's path")


def find(name: str, *, sources: Sources, what: str, first: int = 0) -> Source:
    """Read the source of a class, or of a function that makes the part.

    Args:
        name: as the grid has it.
        sources: the files of the grid's own parts.
        what: of the run it is, such as `backbone`.
        first: the number of arguments that vtjobs hands to it by their place.

    Raises:
        NotOwn: there is no such file, class or function, or it takes too few arguments.
    """
    path, text, tree = sources.parse(name, what=what)
    wanted = name.rpartition(":")[2]
    known = {node.name: node for node in tree.body if isinstance(node, _Function)}
    if wanted not in known:
        raise NotOwn(f"{path}: no class or function {wanted!r}. {suggest(wanted, known)}")
    return source_of(known[wanted], text, path=path, first=first)


def source_in(text: str, name: str) -> Source:
    """Return the source of a class or function from its text, which `find` has read before."""
    known = {node.name: node for node in ast.parse(text).body if isinstance(node, _Function)}
    return source_of(known[name], text, path=Path(), first=0)


def source_of(found: _Function, text: str, *, path: Path, first: int) -> Source:
    """Return the source of a class or function with what it takes.

    Raises:
        NotOwn: a class has no `__init__`, or it takes fewer than `first` arguments by place.
    """
    is_class = isinstance(found, ast.ClassDef)
    function = _init_of(found) if isinstance(found, ast.ClassDef) else found
    if function is None:
        if first:
            raise NotOwn(f"{path}: class {found.name} has no __init__ of its own")
        # A dataclass, or one that inherits what it takes: only a run knows.
        is_open = bool(found.decorator_list or getattr(found, "bases", ()))
        takes = None if is_open else frozenset[str]()
        return Source(text=text, arguments=takes, required=frozenset())
    skipped = first + is_class
    places = [argument.arg for argument in function.args.posonlyargs + function.args.args]
    if len(places) < skipped and function.args.vararg is None:
        what = f"{found.name}.__init__" if is_class else found.name
        raise NotOwn(f"{path}: {what} must take {first} argument{'s' * (first > 1)} by place")
    named = [argument.arg for argument in function.args.kwonlyargs]
    defaults = function.args.kw_defaults
    required = places[skipped : len(places) - len(function.args.defaults)] + [
        name for name, default in zip(named, defaults, strict=True) if default is None
    ]
    known = None if function.args.kwarg is not None else frozenset([*places[skipped:], *named])
    return Source(text=text, arguments=known, required=frozenset(required))


def _init_of(found: ast.ClassDef) -> ast.FunctionDef | None:
    made = (node for node in found.body if isinstance(node, ast.FunctionDef))
    return next((node for node in made if node.name == "__init__"), None)

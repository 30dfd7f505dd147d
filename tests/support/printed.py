"""Commands of vtjobs in what the program prints: found in its source and in its output."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from vtjobs.cli import application

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("commands", "web", "orchestrator", "workers", "jobs", "db", "analysis")
# What stands in a text for a value that is known when it is printed.
BLANK = "{}"
# What is quoted belongs to the command, whatever it holds.
_REST = re.compile(r"(?:'[^'\n]*'|(?!`|[.,:;?](?:\s|$)|\)|\s\(|\s&&|\s\|\||\n).)*")
_START = re.compile(r"(?<![\w/.-])vtjobs (?=[a-z{-])")


@cache
def _command_line() -> Any:
    return get_command(application())


def commands_in(text: str) -> list[str]:
    """Return the commands of vtjobs that a text tells its reader to run.

    A command ends where its clause does. `vtjobs` before a word that is no command is its name.
    """
    known = _command_line().commands
    found = []
    for match in _START.finditer(text):
        rest = _REST.match(text, match.end())
        assert rest is not None
        command = f"vtjobs {rest[0].strip()}"
        name = command.split()[1]
        if name in known or name.startswith(("-", BLANK)):
            found.append(command)
    return found


def printed_by_the_source() -> dict[str, list[str]]:
    """Return template -> the files that print it; `{}` stands for each value."""
    found: dict[str, list[str]] = {}
    paths = [ROOT / "cli.py", *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))]
    for path in sorted(paths):
        # Most files never name vtjobs, and so print no command of it.
        if "vtjobs" not in (source := path.read_text()):
            continue
        for text in _texts(ast.parse(source)):
            for command in commands_in(text):
                found.setdefault(command, []).append(str(path.relative_to(ROOT)))
    return found


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield every text of a module but its docstrings."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in ast.walk(node)} - {id(node)}
            if id(node) not in inner:
                yield "".join(map(_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in inner:
                yield _FIELD.sub(BLANK, node.value)


# What `str.format` and `str.replace` fill in.
_FIELD = re.compile(r"\{\w+\}")


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    # `Config.where` is an option of its own, or nothing.
    is_option = re.search(r"\bwhere\b|\b_where\b", ast.unparse(value)) is not None
    return "" if is_option else BLANK


def parse(command: str) -> None:
    """Parse a command as the command line does, without running it.

    Raises:
        Exception: there is no such command or option, or the arguments are not what it takes.
    """
    words = shlex.split(command.replace(BLANK, "0a1b2c3d"))[1:]
    found = _command_line()
    context = None
    while hasattr(found, "commands"):
        context = type(context)(found) if context else _context_of(found)
        name, found, words = found.resolve_command(context, words)
    found.make_context(name, words, parent=context)


def _context_of(group: Any) -> Any:
    return group.context_class(group, info_name="vtjobs")


def pattern(template: str) -> re.Pattern[str]:
    """Return what matches the commands that a template becomes."""
    return re.compile(re.escape(template).replace(re.escape(BLANK), ".+") + "( -W .+)?")

"""How `vtjobs --help` groups the commands, and what an unknown command is answered with."""

import math
from typing import Any

from typer.core import TyperCommand, TyperGroup

from ..jobs.errors import BadInput, nearest
from .repeated import with_seconds

# No path, name or condition is longer, and no whole number that anybody means is larger.
MOST_CHARACTERS = 4096
MOST_FOLDERS = 200
MOST_NUMBER = 2**31 - 1

# The first group is what a newcomer needs; every command stands in exactly one group.
GROUPS: dict[str, tuple[str, ...]] = {
    "First steps": ("init", "plan", "submit", "status", "report"),
    "Submit": ("run", "hold", "release", "cancel", "retry", "rerun", "supervise"),
    "Watch": (
        *("top", "ui", "runs", "show", "logs", "curve", "diff", "wait", "why", "failures"),
        "notify",
    ),
    "Cost": ("cost", "eff", "usage", "metrics"),
    "Results": (
        "compare",
        "variance",
        "mcnemar",
        "disagreement",
        "scatter",
        "against",
        "papers",
        "evaluate",
        "visualize",
        "export",
        "import",
    ),
    "Seeds": ("power", "topup"),
    "Keep": (
        *("note", "tag", "archive", "delete", "doctor", "gc", "data", "ledger", "config", "schema"),
        *("catalog", "measure", "help"),
    ),
}
# What other tools call it, and what vtjobs calls it.
SYNONYMS: dict[str, str] = {
    "abort": "cancel",
    "attach": "wait",
    "comment": "note",
    "curves": "curve",
    "dashboard": "ui",
    "explain": "why",
    "hide": "archive",
    "info": "show",
    "kill": "cancel",
    "label": "tag",
    "launch": "submit",
    "list": "runs",
    "mail": "notify",
    "log": "logs",
    "ls": "runs",
    "pause": "hold",
    "plot": "curve",
    "ps": "runs",
    "queue": "status",
    "remove": "delete",
    "results": "report",
    "resume": "retry",
    "rm": "delete",
    "sacct": "usage",
    "scancel": "cancel",
    "seff": "eff",
    "squeue": "status",
    "start": "submit",
    "stat": "status",
    "stop": "cancel",
    "table": "report",
    "unhold": "release",
    "watch": "top",
    "web": "ui",
}
# Close names are suggested among these alone: a typing mistake must not end in a change.
READING = frozenset(
    (
        *("init", "plan", "status", "report", "runs", "show", "logs", "curve", "wait", "why"),
        *("diff", "cost", "eff", "usage", "metrics"),
        *("failures", "compare", "variance", "mcnemar", "scatter", "against", "papers", "power"),
        "disagreement",
        *("visualize", "doctor", "config", "schema", "catalog", "notify", "top", "ui", "help"),
    )
)


class Commands(TyperGroup):
    """The commands of vtjobs, listed in groups with whole sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands for `--help`."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self._summary(name)) for name in names])

    def _summary(self, name: str) -> str:
        text = self.commands[name].help or ""
        return " ".join(text.partition("\n\n")[0].split())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is meant; name the right one for a word of another tool's."""
        name = args[0]
        if name in self.commands or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if name in SYNONYMS:
            known = SYNONYMS[name]
            ctx.fail(f"no command {name!r}. vtjobs {known}: {self._summary(known)}")
        near = nearest(name, READING)
        hint = f" {near[:1].upper()}{near[1:]}" if near else " See: vtjobs --help"
        ctx.fail(f"no command {name!r}.{hint}")


class Command(TyperCommand):
    """A command that refuses words which no file system, database or terminal can take."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read a command's words.

        Raises:
            BadInput: one is not UTF-8 or too long, or a number is too large.
        """
        for word in args:
            _require_text(word)
        if any(parameter.name == "watch" for parameter in self.params):
            args = with_seconds(args)
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and not (math.isfinite(value) and abs(value) <= MOST_NUMBER):
                raise BadInput(f"--{name.replace('_', '-')}: at most {MOST_NUMBER}, got {value}")
        return rest


def _require_text(word: str) -> None:
    shown = f"{word[:40]!r}{'…' if len(word) > 40 else ''}"
    if any("\ud800" <= letter <= "\udfff" for letter in word):
        raise BadInput(f"{shown}: not valid UTF-8")
    if len(word) > MOST_CHARACTERS:
        raise BadInput(f"{shown}: longer than {MOST_CHARACTERS} characters")
    if word.count("/") > MOST_FOLDERS:
        raise BadInput(f"{shown}: more than {MOST_FOLDERS} folders")

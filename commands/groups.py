"""How `vtjobs --help` groups the commands, and what an unknown command is answered with."""

from typing import Any

from typer.core import TyperGroup

from ..jobs.errors import nearest

# The first group is what a newcomer needs; every command stands in exactly one group.
GROUPS: dict[str, tuple[str, ...]] = {
    "First steps": ("init", "plan", "submit", "status", "report"),
    "Submit": ("run", "hold", "release", "cancel", "retry", "rerun", "supervise"),
    "Watch": ("runs", "show", "logs", "wait", "why", "failures"),
    "Results": ("compare", "variance", "mcnemar", "against", "papers", "evaluate", "export"),
    "Seeds": ("power", "topup"),
    "Keep": ("doctor", "gc", "data", "ledger", "config", "schema", "catalog", "measure", "help"),
}
# What other tools call it, and what vtjobs calls it.
SYNONYMS: dict[str, str] = {
    "abort": "cancel",
    "attach": "wait",
    "delete": "gc",
    "explain": "why",
    "info": "show",
    "kill": "cancel",
    "launch": "submit",
    "list": "runs",
    "log": "logs",
    "ls": "runs",
    "pause": "hold",
    "ps": "runs",
    "queue": "status",
    "remove": "gc",
    "results": "report",
    "resume": "retry",
    "rm": "gc",
    "scancel": "cancel",
    "squeue": "status",
    "start": "submit",
    "stat": "status",
    "stop": "cancel",
    "table": "report",
    "top": "status",
    "unhold": "release",
}
# Close names are suggested among these alone: a typing mistake must not end in a change.
READING = frozenset(
    (
        *("init", "plan", "status", "report", "runs", "show", "logs", "wait", "why"),
        *("failures", "compare", "variance", "mcnemar", "against", "papers", "power"),
        *("doctor", "config", "schema", "catalog", "help"),
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

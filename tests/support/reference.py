"""The reference pages of commands and of the grid file: `python -m tests.support.reference`.

They are made from the command line, from the schema of the grid file, and from the output of real
commands over a small grid that is really trained.
"""

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from vtjobs.cli import application
from vtjobs.commands.groups import GROUPS
from vtjobs.jobs.atomic_files import make_folder
from vtjobs.jobs.grid.heads import HEADS
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.grid.schema import Grid

from .cli import Cli

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = DOCS / "reference-commands.md"
KEYS = DOCS / "reference-grid.md"
TINY = """\
name: tiny
backbones: [vit_mini]
datasets: [digits]
heads: [supervised, {drloc: {weight: 0.5}}]
seeds: 3
recipe: quickstart
train: {epochs: 2, warmup_epochs: 1}
"""
OLD = """\
backbone,dataset,head,seed,top1
vit_mini,digits,supervised,0,90.2
vit_mini,digits,supervised,1,91.0
vit_mini,digits,drloc,0,92.5
vit_mini,digits,drloc,1,
"""
# Command -> how it is called, in this order. RUN and OTHER are runs of the grid; LATER and NEXT have
# not started, and LATER is held.
EXAMPLES = {
    "init": "vtjobs init grid.yaml",
    "plan": "vtjobs plan tiny.yaml",
    "submit": "vtjobs submit tiny.yaml --wait",
    "wait": "vtjobs wait tiny",
    "status": "vtjobs status",
    "report": "vtjobs report tiny",
    "runs": "vtjobs runs tiny",
    "show": "vtjobs show RUN",
    "logs": "vtjobs logs RUN",
    "curve": "vtjobs curve tiny --height 8",
    "diff": "vtjobs diff RUN OTHER",
    "why": "vtjobs why RUN",
    "eff": "vtjobs eff tiny",
    "usage": "vtjobs usage --by head",
    "metrics": "vtjobs metrics",
    "note": "vtjobs note tiny 'the first try'",
    "tag": "vtjobs tag tiny --add paper",
    "cost": "vtjobs cost tiny",
    "delete": "vtjobs delete tiny --dry-run",
    "archive": "vtjobs archive tiny --dry-run",
    "notify": "vtjobs notify --test",
    "top": "vtjobs top --help",
    "ui": "vtjobs ui --help",
    "failures": "vtjobs failures",
    "compare": "vtjobs compare tiny",
    "variance": "vtjobs variance tiny",
    "mcnemar": "vtjobs mcnemar RUN OTHER",
    "disagreement": "vtjobs disagreement tiny",
    "against": "vtjobs against drloc:4 tiny",
    "papers show": "vtjobs papers show drloc:4",
    "papers audit": "vtjobs papers audit drloc",
    "evaluate": "vtjobs evaluate RUN --sets test --image-size 16",
    "scatter": "vtjobs scatter tiny --y test@16px",
    "export": "vtjobs export RUN weights",
    "visualize": "vtjobs visualize RUN maps --kind cam",
    "import": "vtjobs import old.csv",
    "power": "vtjobs power tiny --half-width 2",
    "topup": "vtjobs topup tiny --half-width 2 --dry-run",
    "rerun": "vtjobs rerun RUN --dry-run",
    "gc": "vtjobs gc tiny --dry-run",
    "hold": "vtjobs hold LATER",
    "release": "vtjobs release LATER --dry-run",
    "cancel": "vtjobs cancel LATER --yes",
    "retry": "vtjobs retry LATER --dry-run",
    "run": "vtjobs run NEXT",
    "supervise": "vtjobs supervise --once",
    "doctor": "vtjobs doctor",
    "data prepare": "vtjobs data prepare digits",
    "data verify": "vtjobs data verify digits",
    "data list": "vtjobs data list",
    "ledger upgrade": "vtjobs ledger upgrade",
    "ledger rebuild": "vtjobs ledger rebuild --yes",
    "config show": "vtjobs config show",
    "schema": "vtjobs schema status",
    "catalog": "vtjobs catalog drloc-scratch",
    "measure": "vtjobs measure vit_mini --image-size 16 --batch 8 --repeats 20",
    "help": "vtjobs help hold",
}
# Of a longer output the beginning is shown.
MOST_LINES = 14
HEAD = """\
# Every command

The examples were run over this grid, `tiny.yaml`:

```yaml
{tiny}```

`vtjobs COMMAND --help` prints the same options.
"""
GRID_HEAD = """\
# Every key of a grid file

[Write a grid](grid.md) explains them by use. `vtjobs schema` prints the same as a JSON Schema, for editors.
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """An example as it was run."""

    command: str
    output: str
    code: int


def run_examples(user: Cli) -> Iterator[tuple[str, Shown]]:
    """Run every example as a user in an empty folder.

    Yields:
        The command's name and what came of it.
    """
    (user.folder / "tiny.yaml").write_text(TINY)
    (user.folder / "old.csv").write_text(OLD)
    runs: dict[str, str] = {}

    def call(command: str) -> Shown:
        words = [runs.get(word, word) for word in shlex.split(command)]
        done = user(*words[1:])
        output = (done.stdout + done.stderr).replace(str(user.folder), "/lab")
        output = re.sub(r"^.* (slurm|ray) +not in use.*\n", "", output, flags=re.M)
        output = re.sub(r"^Usage: .*?(?= [a-z]+ \[OPTIONS)", "Usage: vtjobs", output)
        return Shown(" ".join(words), output, done.returncode)

    def ids(*selector: str) -> list[str]:
        # Standard error may have more to say, such as that nothing serves the queue.
        return [run_id[:8] for run_id in user.ok("runs", *selector, "--quiet").split()]

    for name, command in EXAMPLES.items():
        if name == "hold":
            call("vtjobs submit tiny.yaml --set seeds=4 --set name=more --hold")
            runs["LATER"] = ids("more", "state=pending")[0]
        if name == "run":
            call("vtjobs submit tiny.yaml --set seeds=5 --set name=most --set max_running=1")
            runs["NEXT"] = ids("most", "state=pending")[-1]
        if name == "notify":
            (user.folder / "vtjobs.yaml").write_text("notify: {command: cat}\n")
        yield name, call(command)
        if name == "notify":
            (user.folder / "vtjobs.yaml").unlink()
        if name == "submit":
            first, other, *_ = ids("tiny")
            runs |= {"RUN": first, "OTHER": other}


def commands(names: Sequence[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield every command by its name, or those of some groups."""
    root: Any = typer.main.get_command(application())
    for name in names or root.commands:
        inner = getattr(root.commands[name], "commands", None)
        if inner is None:
            yield name, root.commands[name]
        else:
            yield from ((f"{name} {word}", one) for word, one in inner.items())


def commands_page(shown: dict[str, Shown]) -> str:
    """Return the page of commands."""
    parts = [HEAD.format(tiny=TINY)]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name, command in commands(names):
            parts += [command_section(name, command), _example(shown[name])]
    return "\n".join(parts)


def command_section(name: str, command: Any) -> str:
    """Return what a command does, and its arguments and options."""
    context = typer.Context(command, info_name=f"vtjobs {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    text = re.sub(r"\s*\n\s*(?=\S)", " ", (command.help or "").replace("\n\n", "\0"))
    lines = [f"### {name}", "", text.replace("\0", "\n\n").strip(), "", "```", usage, "```", ""]
    rows = [row for param in command.params if (row := _parameter(param, context))]
    return "\n".join([*lines, "| argument or option | meaning |", "|---|---|", *rows, ""])


def _parameter(param: Any, context: Any) -> str:
    if getattr(param, "hidden", False) or "--help" in param.opts:
        return ""
    record = param.get_help_record(context)
    if record is None:
        return ""
    name, meaning = record
    return f"| `{_cell(name)}` | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _example(shown: Shown) -> str:
    lines = shown.output.rstrip().splitlines()
    cut = [*lines[:MOST_LINES], "…"] if len(lines) > MOST_LINES + 1 else lines
    cut = cut or ["(nothing)"]
    body = "\n".join(line.rstrip() for line in [f"$ {shown.command}", *cut])
    return f"```console\n{body}\n```\n"


def keys_page() -> str:
    """Return the page of the grid file's keys."""
    schema = Grid.model_json_schema()
    definitions = schema["$defs"]
    parts = [GRID_HEAD, _keys("The grid", schema, definitions)]
    parts += [
        _keys(f"`{key}`", definitions[name], definitions)
        for key, name in {
            "data": "Data",
            "variance": "Variance",
            "compare": "Compare",
            "overrides": "Override",
            "stages": "Stage",
            "resources": "Resources",
            "backend: local": "Local",
            "backend: slurm": "Slurm",
            "backend: ray": "Ray",
        }.items()
    ]
    parts.append(_keys("`train`", Recipe.model_json_schema(), {}))
    parts += [
        _keys(f"Head `{name}`", head.model.model_json_schema(), {})
        for name, head in HEADS.items()
        if head.model.model_fields
    ]
    return "\n".join(parts)


def _keys(title: str, record: dict[str, Any], definitions: dict[str, Any]) -> str:
    required = record.get("required", ())
    rows = []
    for key, value in record["properties"].items():
        default = "required" if key in required else _default(value)
        meaning = value.get("description") or ""
        rows.append(f"| `{key}` | {_kind(value, definitions)} | {default} | {_cell(meaning)} |")
    table = ["| key | value | default | meaning |", "|---|---|---|---|", *rows]
    return "\n".join([f"## {title}", "", *table, ""])


def _default(value: dict[str, Any]) -> str:
    if value.get("default") is None or isinstance(value["default"], dict):
        return ""
    return f"`{json.dumps(value['default'], ensure_ascii=False)}`"


def _kind(value: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        found = definitions.get(name, {})
        return _words(found["enum"]) if "enum" in found else "mapping"
    if "enum" in value:
        return _words(value["enum"])
    if "anyOf" in value:
        kinds = [_kind(one, definitions) for one in value["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    match value.get("type"):
        case "array":
            return f"list of {_kind(value['items'], definitions)}" if value.get("items") else "list"
        case "object":
            return "mapping"
        case "integer" | "number" as kind:
            return kind + _bounds(value)
        case "string":
            return "text"
        case "boolean":
            return "true or false"
        case _:
            return "any"


def _words(words: list[str]) -> str:
    return " or ".join(f"`{word}`" for word in words)


def _bounds(value: dict[str, Any]) -> str:
    low, high = value.get("minimum"), value.get("maximum")
    above, below = value.get("exclusiveMinimum"), value.get("exclusiveMaximum")
    parts = [
        f"{sign} {bound:g}"
        for sign, bound in (("≥", low), (">", above), ("≤", high), ("<", below))
        if bound is not None
    ]
    return f" ({', '.join(parts)})" if parts else ""


def main() -> int:
    """Write both pages anew."""
    KEYS.write_text(keys_page())
    with tempfile.TemporaryDirectory() as folder:
        lab = make_folder(Path(folder) / "lab")
        user = Cli(lab, Path(folder) / "cache", {"XDG_DATA_HOME": str(lab), "HOME": str(lab)})
        shown = dict(run_examples(user))
    COMMANDS.write_text(commands_page(shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())

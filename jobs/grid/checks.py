"""Read a grid file and report every mistake in it, with file, line, key and fix."""

import difflib
import os
from pathlib import Path
from typing import Any

from ..errors import BadInput, Problem, suggest
from ..names import name_problem
from ..run.design import Design
from ..run.spec import BASELINE, EACH
from ..strict_yaml import Document, Path_, parse, read
from ..units import format_duration
from ..validation import validate
from . import catalogue
from .entries import Given
from .schema import HOMES, Grid, Stage


def grid_document(source: str, *, changes: Given | None = None) -> Document:
    """Read the text of a grid: a file's path or a built-in grid's name.

    Args:
        source: what the user typed.
        changes: settings from the command line (`--set`), by dotted path.

    Raises:
        BadInput: it is not the YAML of a mapping.
    """
    document = _source(source)
    if not isinstance(document.data, dict):
        keys = "keys backbones, datasets, heads, seeds, recipe"
        raise BadInput(Problem(file=document.file, message=f"expected a mapping with {keys}"))
    for path, value in (changes or {}).items():
        _change(document, path, value)
    _take_in_recipes(document)
    return document


def _take_in_recipes(document: Document) -> None:
    """Put recipes that lie in files of their own into the document, which is stored.

    Raises:
        BadInput: such a file is not there, or is not the YAML of a mapping.
    """
    recipes = document.data.get("recipes")
    for name, value in recipes.items() if isinstance(recipes, dict) else ():
        if not isinstance(value, str):
            continue
        path = Path(document.file).parent / os.path.expanduser(value)
        if not path.is_file():
            raise BadInput(document.problem(("recipes", name), f"{path}: no such file"))
        found = read(path).data
        if not isinstance(found, dict):
            message = "expected a mapping, such as {extends: deit, lr: 0.0005}"
            raise BadInput(Problem(file=str(path), message=message))
        recipes[name] = found


def check_grid(document: Document) -> tuple[Grid | None, list[Problem]]:
    """Check a document against the schema; return the grid, or None, and every mistake found."""
    grid, problems = validate(Grid, document.data, document, homes=HOMES)
    problems += _list_problems(document)
    if grid is not None:
        problems += _stage_problems(grid, document)
        problems += _cadence_problems(grid, document)
        problems += _seed_problems(grid, document)
        problems += _compare_problems(grid, document)
    return grid, problems


def _source(source: str) -> Document:
    path = Path(source)
    if path.exists():
        return read(path)
    if path.suffix in (".yaml", ".yml") or "/" in source:
        raise BadInput(Problem(file=source, message="no such file", fix=_near_file(path)))
    if source not in catalogue.grid_names():
        near = _near_file(path)
        fix = near or suggest(source, catalogue.grid_names())
        raise BadInput(f"{source}: no such file, and no built-in grid. {fix}")
    return parse(catalogue.grid_source(source), file=source)


def _near_file(path: Path) -> str:
    """Return the question for a grid file beside it whose name is like this one's, or ""."""
    files = {file.stem: str(file) for file in path.parent.glob("*.y*ml")}
    if path.name in files:
        return f"Did you mean {files[path.name]!r}?"
    # Without their endings, by which any two files are alike.
    close = difflib.get_close_matches(path.stem, files, n=1)
    return f"Did you mean {files[close[0]]!r}?" if close else ""


def _change(document: Document, path: str, value: Any) -> None:
    inner = document.data
    *parents, last = path.split(".")
    for part in parents:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise BadInput(f"--set {path}: {part} is not a mapping")
    inner[last] = value


def _list_problems(document: Document) -> list[Problem]:
    """Check the entry lists, which pydantic sees as `Any`."""
    problems: list[Problem] = []
    stages = document.data.get("stages") or []
    owner_paths: list[tuple[str | int, ...]] = [()]
    if isinstance(stages, list):
        owner_paths += [("stages", index) for index in range(len(stages))]
    for owner_path in owner_paths:
        owner = document.data if not owner_path else stages[int(owner_path[1])]
        for key in ("backbones", "datasets", "heads"):
            if isinstance(owner, dict) and isinstance(owner.get(key), list):
                problems += _entries_problems(owner[key], document, (*owner_path, key))
    if isinstance(axes := document.data.get("axes"), dict):
        for name, values in axes.items():
            if isinstance(values, list):
                problems += _entries_problems(values, document, ("axes", name), of_names=False)
    return problems


def _entries_problems(
    entries: list[Any], document: Document, path: tuple[str | int, ...], *, of_names: bool = True
) -> list[Problem]:
    if not entries:
        return [document.problem(path, "at least one is needed")]
    problems = []
    seen: list[Any] = []
    for index, entry in enumerate(entries):
        if entry in seen:
            shown = next(iter(entry), entry) if isinstance(entry, dict) else entry
            problems.append(
                document.problem(
                    (*path, index), f"{shown} listed twice (would create duplicate runs)"
                )
            )
        seen.append(entry)
        if (
            of_names
            and not isinstance(entry, str)
            and not (isinstance(entry, dict) and len(entry) == 1)
        ):
            message = "expected a name, or one name with its settings: {name: {key: value}}"
            problems.append(document.problem((*path, index), message))
    return problems


def _stage_problems(grid: Grid, document: Document) -> list[Problem]:
    problems: list[Problem] = []
    names: list[str] = []
    for index, stage in enumerate(grid.stages):
        where = ("stages", index)
        if problem := name_problem(stage.name):
            problems.append(document.problem((*where, "name"), problem))
        if stage.name in names:
            problems.append(
                document.problem((*where, "name"), f"duplicate stage name {stage.name!r}")
            )
        if stage.init_from is not None and stage.init_from not in names:
            message = f"no earlier stage {stage.init_from!r}"
            problems.append(
                document.problem((*where, "init_from"), message, suggest(stage.init_from, names))
            )
        if stage.init_from is not None and stage.backbones is not None:
            message = "a stage with init_from keeps the backbones of the stage that it starts from"
            problems.append(document.problem((*where, "backbones"), message))
        names.append(stage.name)
    parts: list[tuple[Path_, Stage | None]] = [
        (("stages", index), stage) for index, stage in enumerate(grid.stages)
    ]
    for owner_path, part in parts or [((), None)]:
        for key in ("heads", "recipe"):
            if not (getattr(part, key, None) or getattr(grid, key)):
                problems.append(document.problem((*owner_path, key), "is required"))
    return problems


def _seed_problems(grid: Grid, document: Document) -> list[Problem]:
    apart = grid.variance is not None and grid.variance.design is not Design.TOGETHER
    if apart and grid.seeds:
        message = "the design of `variance` already sets the seed of every stream"
        return [document.problem(("seeds",), message, "Remove seeds or variance")]
    if apart:
        rules: list[tuple[Path_, Given]] = [
            (("include", i), rule) for i, rule in enumerate(grid.include)
        ]
        rules += [(("exclude", i), rule) for i, rule in enumerate(grid.exclude)]
        rules += [(("overrides", i, "when"), rule.when) for i, rule in enumerate(grid.overrides)]
        message = "rules cannot name seeds here: the design of `variance` sets them"
        seeded = [owner_path for owner_path, rule in rules if "seed" in rule]
        return [
            document.problem((*owner_path, "seed"), message, "Remove it") for owner_path in seeded
        ]
    if not apart and not grid.seeds:
        return [document.problem(("seeds",), "is required")]
    return []


def _compare_problems(grid: Grid, document: Document) -> list[Problem]:
    """Check what the comparison needs; heads of a chain of stages have their names only later."""
    if grid.compare is None:
        return []
    if grid.compare.select == "best_val" and grid.data.val is None:
        message = "best_val needs held-out validation images, but data.val is not set"
        return [document.problem(("compare", "select"), message, "Set data: {val: 0.1}")]
    if grid.compare.baseline in (BASELINE, EACH) or grid.stages:
        return []
    names = [next(iter(head)) if isinstance(head, dict) else str(head) for head in grid.heads or []]
    named = grid.compare.baseline
    if any(named == name or named.startswith(f"{name}(") for name in names):
        return []
    return [
        document.problem(
            ("compare", "baseline"), f"no head {named!r} in this grid", suggest(named, names)
        )
    ]


def _cadence_problems(grid: Grid, document: Document) -> list[Problem]:
    walltime = grid.resources.walltime
    # The default cadence may be longer: a run also saves when its time is up.
    if (
        walltime is None
        or "checkpoint_every" not in grid.model_fields_set
        or grid.checkpoint_every < walltime
    ):
        return []
    every, limit = format_duration(grid.checkpoint_every), format_duration(walltime)
    message = f"{every} is not shorter than resources.walltime ({limit})"
    return [
        document.problem(("checkpoint_every",), message, "Save more often, or ask for more time")
    ]

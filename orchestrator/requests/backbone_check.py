"""Ask timm about the backbones of a grid, in a process of its own, and remember the answers."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import read_cache, to_json, write_over
from ...jobs.config.host import clean_environment
from ...jobs.errors import BadInput, Problem
from ...jobs.grid.expansion import Cell, Expansion
from ...jobs.grid.heads import HEADS
from ...jobs.grid.image_folder import cache_folder
from ...jobs.grid.recipe import trained_on
from ...jobs.run.spec import STAGE, canonical, digest
from ...jobs.strict_yaml import Document

TIMEOUT_S = 300
_RECIPE_FIELDS = ("image_size", "dropout", "drop_path")
# What a head may ask of the backbone's making, and what most do.
_HEAD_FIELDS = {
    "positions": True,
    "mega": None,
    "labels": True,
    "blocks": "last",
    "shuffle": False,
    "patch_augment": False,
}


def questions(expansion: Expansion) -> dict[str, dict[str, Any]]:
    """Return the distinct backbones of a grid as they will be made, by a hash of the question."""
    found: dict[str, dict[str, Any]] = {}
    seen: set[Any] = set()
    for cell in expansion.cells:
        parent = expansion.cells[cell.parent].spec if cell.parent is not None else None
        key = tuple(
            (spec.backbone, spec.dataset, spec.recipe, spec.head)
            for spec in (cell.spec, parent)
            if spec is not None
        )
        if key in seen:
            continue
        seen.add(key)
        question = ask(cell.spec, parent)
        found[digest(canonical(question))] = question
    return found


def ask(spec: Any, parent: Any = None) -> dict[str, Any]:
    """Return what the making of a cell's backbone depends on.

    Of one that starts from another cell, that one too.
    """
    dataset, recipe, head = json.loads(spec.dataset), json.loads(spec.recipe), json.loads(spec.head)
    params = head["params"]
    question: dict[str, Any] = {
        "backbone": json.loads(spec.backbone) | {"weights": None},
        "dataset": {name: dataset[name] for name in ("channels", "classes")},
        "recipe": {name: recipe[name] for name in _RECIPE_FIELDS},
        "head": {
            "params": {
                name: params[name]
                for name, usual in _HEAD_FIELDS.items()
                if params.get(name, usual) != usual
            }
        },
    }
    if parent is not None:
        question["parent"] = ask(parent)
    if head["name"] == "distill" and "source" not in head:
        # Whether it is the parent, or another model at this cell's classes and size.
        question["teacher"] = (
            STAGE if params["teacher"] == STAGE else params["teacher"] | {"weights": None}
        )
    return question


def answers(expansion: Expansion) -> dict[str, dict[str, Any]]:
    """Return facts or an error for each question, from the cache or from timm."""
    try:
        timm_version = version("timm")
    except PackageNotFoundError:
        return {}
    path: Path = cache_folder() / f"backbones-{timm_version}.json"
    known: dict[str, dict[str, Any]] = read_cache(path)
    wanted = questions(expansion)
    missing = {key: question for key, question in wanted.items() if key not in known}
    if missing:
        fresh = _describe(missing)
        # Errors are not remembered: they may come from a broken installation.
        known |= {key: answer for key, answer in fresh.items() if "error" not in answer}
        write_over(path, to_json(known))
        known |= fresh
    return {key: known[key] for key in wanted}


def _describe(missing: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "vtjobs.workers.tools.backbone_facts"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(missing).encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
            env=clean_environment(),
        )
        found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise BadInput(
            f"backbones cannot be checked: {last or 'the describing process failed'}"
        ) from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"backbones cannot be checked: no answer within {TIMEOUT_S} s") from None
    return found


def check_backbones(
    expansion: Expansion, document: Document, *, halves: bool = False
) -> list[Problem]:
    """Return every reason why a cell's backbone cannot be made or carry its head.

    Args:
        expansion: the grid's cells.
        document: the grid's file.
        halves: whether the grid allows smaller micro-batches, which BatchNorm's statistics do not
            bear.
    """
    found = answers(expansion)
    problems: list[Problem] = []
    for cell in expansion.cells if found else []:
        parent = expansion.cells[cell.parent].spec if cell.parent is not None else None
        answer = found[digest(canonical(ask(cell.spec, parent)))]
        where = cell.entries[0].path
        head = json.loads(cell.spec.head)
        problem = None
        if "error" in answer:
            problem = document.problem(where, answer["error"])
        elif "source" not in head and HEADS[head["name"]].is_spatial and min(answer["grid"]) < 2:
            size = "x".join(map(str, answer["grid"]))
            message = (
                f"backbone {cell.labels['backbone']} has a {size} token grid; head {head['name']}"
                " needs at least 2x2"
            )
            problem = document.problem(
                where, message, "Raise train.image_size or use a smaller patch"
            )
        elif answer["batch_norm"] and min(answer["grid"]) == 1 and _last_share(cell) == 1:
            name = cell.labels["backbone"]
            message = (
                "a virtual rank's smallest share of a batch is one image; BatchNorm on the 1x1 "
                f"feature map of {name} needs at least two"
            )
            fix = "Set train.drop_last: true or another train.batch_size"
            problem = document.problem(("train",), message, fix)
        elif halves and answer["batch_norm"]:
            name = cell.labels["backbone"]
            message = f"backbone {name} has BatchNorm, whose statistics depend on the micro-batch"
            problem = document.problem(("halve_micro_batch",), message, "Remove halve_micro_batch")
        if problem is not None and problem not in problems:
            problems.append(problem)
    return problems


def _last_share(cell: Cell) -> int:
    """Return the size of the smallest share that a virtual rank ever gets, empty ones left out."""
    recipe, train = json.loads(cell.spec.recipe), trained_on(json.loads(cell.spec.dataset))
    rest = 0 if recipe["drop_last"] else train % recipe["batch_size"]
    whole = recipe["batch_size"] // recipe["virtual_ranks"]
    return int(min(whole, max(1, rest // recipe["virtual_ranks"])) if rest else whole)

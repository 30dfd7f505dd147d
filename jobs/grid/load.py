"""A grid file taken in: read, checked and expanded, with every mistake in it reported at once."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import BadInput, Problem, suggest
from ..run.comparing import Select
from ..run.metrics import MAIN, NEIGHBOURS, OF_TASK
from ..run.settings import CellSettings
from ..strict_yaml import Document, Path_
from ..values import Value, changed
from . import catalogue
from .checks import check_grid, grid_document
from .entries import Entry, Given, entries
from .expand import expand
from .expansion import Expansion
from .own_function import find_metrics
from .resolve import Resolver
from .schema import Compare, Grid
from .scoring import can_be_scored


class Intake(Value, frozen=True, kw_only=True):
    """A grid without a mistake that the file alone shows."""

    grid: Grid
    document: Document
    expansion: Expansion


def take_in(
    source: str,
    *,
    changes: Given | None = None,
    max_runs: int = 100_000,
    data_root: Path | None = None,
) -> Intake:
    """Read, check and expand a grid.

    Args:
        source: a file's path or a built-in grid's name.
        changes: settings from the command line (`--set`), by dotted path.
        max_runs: the largest grid to take.
        data_root: where weights lie that are named and not given by their path; None: such are not
            looked for.

    Raises:
        BadInput: with every mistake of the file, in its order.
    """
    return take_in_document(
        grid_document(source, changes=changes), max_runs=max_runs, data_root=data_root
    )


def take_in_document(
    document: Document, *, max_runs: int = 100_000, data_root: Path | None = None
) -> Intake:
    """Check and expand what was read already; raises as `take_in` does."""
    resolver = Resolver(document, data_root)
    grid, problems = check_grid(document)
    if grid is not None:
        resolver.data = grid.data.model_dump()
    # Also where the schema was violated elsewhere: a user wants to hear of both in one go.
    _check_names(document, resolver)
    metrics = find_metrics(grid.data.metrics, resolver.mistakes) if grid is not None else []
    expansion = None
    if grid is not None and not problems:
        try:
            expansion = expand(grid, document, resolver=resolver, max_runs=max_runs)
        except BadInput as error:
            problems = error.problems
    problems = [*problems, *resolver.problems]
    if grid is None or expansion is None or problems:
        raise BadInput(_in_order(problems))
    expansion = changed(expansion, metrics=metrics)
    grid = _with_usual_metric(grid, expansion)
    for problem in (
        _unknown_metric(grid, expansion, document),
        _metric_without_classes(expansion, document),
        _no_depth_to_record(grid, expansion, document),
    ):
        if problem is not None:
            raise BadInput(problem)
    return Intake(grid=grid, document=document, expansion=expansion)


def _with_usual_metric(grid: Grid, expansion: Expansion) -> Grid:
    """Return the grid with the metric that it compares by, where it declares none by name.

    It is that of the cells which no other starts from.
    """
    if grid.compare is None or "metric" in grid.compare.model_fields_set:
        return grid
    inner = {cell.parent for cell in expansion.cells}
    tasks = {
        cell.spec.settings.dataset.task
        for index, cell in enumerate(expansion.cells)
        if index not in inner
    }
    if len(tasks) != 1:
        return grid
    compare = grid.compare.model_copy(update={"metric": MAIN[tasks.pop()]})
    return grid.model_copy(update={"compare": compare})


def _metric_without_classes(expansion: Expansion, document: Document) -> Problem | None:
    """Return what is wrong with a lab's own metrics where images have no class."""
    names = [
        cell.labels["dataset"]
        for cell in expansion.cells
        if not cell.spec.settings.dataset.has_classes and expansion.metrics
    ]
    if not names:
        return None
    message = f"your own metrics are given a class for each image, and {names[0]} has none"
    return document.problem(("data", "metrics"), message, "Leave them out of this grid")


def _no_depth_to_record(grid: Grid, expansion: Expansion, document: Document) -> Problem | None:
    """Return why no run would record what its blocks add."""
    tasks = {cell.spec.settings.dataset.task for cell in expansion.cells}
    if not grid.record_depth or "classification" in tasks:
        return None
    message = "only runs that learn classes record what their blocks add, and this grid has none"
    return document.problem(("record_depth",), message, "Leave it out")


def _unknown_metric(grid: Grid, expansion: Expansion, document: Document) -> Problem | None:
    """Return what is wrong with the score that a grid declares it compares by."""
    compare = grid.compare
    if compare is None:
        return None
    cells = [cell.spec.settings for cell in expansion.cells]
    trained = NEIGHBOURS.fullmatch(compare.metric) is None
    if compare.select is not Select.LAST and not (
        trained and compare.set in ("test", "val", *grid.data.sets)
    ):
        # An evaluation scores the last epoch's weights.
        score = f"{compare.metric} on {compare.set}"
        message = f"{score} is scored after training, with the weights of the last epoch"
        return document.problem(("compare", "select"), message, "Set select: last")
    if not trained:
        return _not_by_neighbours(compare, cells, document)
    if not all(settings.head.shared.labels for settings in cells):
        # Without a classifier it is the head that says how well it does.
        return None
    tasks = dict.fromkeys(settings.dataset.task for settings in cells)
    of_tasks = dict.fromkeys(name for task in tasks for name in OF_TASK[task])
    known = [*of_tasks, *(metric.name for metric in expansion.metrics)]
    name = compare.metric
    if name.removeprefix("ema_") in known:
        return None
    fix = f"{suggest(name, known)}. Your own are named in data.metrics"
    return document.problem(("compare", "metric"), f"no set is scored by {name!r}", fix)


def _not_by_neighbours(
    compare: Compare, cells: Sequence[CellSettings], document: Document
) -> Problem | None:
    """Return why no run can be scored so by its neighbours."""
    if any(can_be_scored(settings, compare.metric, compare.set) for settings in cells):
        return None
    message = f"no run of this grid can be scored by {compare.metric} on {compare.set}"
    fix = "test is of a run's own classes, test@DATASET of those of a dataset with the same images"
    return document.problem(("compare", "metric"), message, fix)


def _in_order(problems: list[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.line or 0)


def _check_names(document: Document, resolver: Resolver) -> None:
    """Look up every backbone, dataset, head and recipe that the raw file names, whatever else is
    wrong with it.
    """
    varied = _varied(document.data)
    resolver.check_own_recipes()
    for owner_path, owner in _owners(document.data):
        for entry in _named(owner, "backbones", owner_path, varied):
            resolver.backbone(entry, {})
        for entry in _named(owner, "datasets", owner_path, varied):
            resolver.dataset(entry, {})
        for entry in _named(owner, "heads", owner_path, varied):
            resolver.check_head(entry)
        _check_recipe(document.data, owner, owner_path, resolver, varied)


def _owners(data: Given) -> Iterator[tuple[Path_, Given]]:
    yield (), data
    stages = data.get("stages")
    for index, stage in enumerate(stages if isinstance(stages, list) else []):
        if isinstance(stage, dict):
            yield ("stages", index), stage


def _varied(data: Given) -> set[str]:
    """Return the dotted paths that axes and overrides set.

    What they touch is judged with their values.
    """
    axes, overrides, variants = data.get("axes"), data.get("overrides"), data.get("variants")
    found = set(axes) if isinstance(axes, dict) else set()
    for changes in variants.values() if isinstance(variants, dict) else ():
        found |= set(changes) if isinstance(changes, dict) else set()
    for override in overrides if isinstance(overrides, list) else []:
        if isinstance(override, dict) and isinstance(override.get("set"), dict):
            found |= set(override["set"])
    return found


def _named(owner: Given, key: str, owner_path: Path_, varied: set[str]) -> list[Entry]:
    items = owner.get(key)
    items = items if isinstance(items, list) else []
    fit = [index for index, item in enumerate(items) if _is_entry(item)]
    found = entries([items[index] for index in fit], (*owner_path, key))
    prefix = key.removesuffix("s")
    return [
        Entry(
            name=entry.name,
            settings=entry.settings,
            path=(*owner_path, key, index),
            label=entry.label,
        )
        for entry, index in zip(found, fit, strict=True)
        if not any(path.startswith(f"{prefix}.{entry.setting}.") for path in varied)
    ]


def _is_entry(item: Any) -> bool:
    return isinstance(item, str) or (isinstance(item, dict) and len(item) == 1)


def _check_recipe(
    data: Given, owner: Given, owner_path: Path_, resolver: Resolver, varied: set[str]
) -> None:
    name, path = (
        (owner["recipe"], (*owner_path, "recipe"))
        if owner.get("recipe")
        else (data.get("recipe"), ("recipe",))
    )
    if not isinstance(name, str) or not name:
        return
    train: Given = {}
    sources: dict[str, Path_] = {}
    for where, part in (((), data), (owner_path, owner)):
        settings = part.get("train")
        for key, value in settings.items() if isinstance(settings, dict) else ():
            train[key], sources[key] = value, (*where, "train", key)
    # The grid's own part of a chain is judged with each stage's.
    waits = not owner_path and bool(data.get("stages"))
    moves = any(key.split(".")[0] in ("train", "recipe") for key in varied)
    if not catalogue.is_recipe(resolver.base_of(name)) or not (waits or moves):
        resolver.recipe(name, train, sources, path)

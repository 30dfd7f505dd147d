"""From a grid's text to the ledger and the first allocations; and the dry run of it."""

import json
import os
from collections.abc import Callable, Iterator

from ...db import queries
from ...db.engine import reading
from ...jobs.atomic_files import make_folder
from ...jobs.config.config import Config
from ...jobs.config.host import user_here
from ...jobs.config.shared_memory import fitted, free_bytes
from ...jobs.config.site import configured, settings_of
from ...jobs.errors import BadInput, Problem
from ...jobs.grid.entries import Given
from ...jobs.grid.expansion import Cell, Expansion
from ...jobs.grid.load import take_in
from ...jobs.grid.schema import Grid
from ...jobs.run.loaders import share_bytes
from ...jobs.run.spec import BASELINE, EACH
from ...jobs.strict_yaml import Document
from ...jobs.values import Value, changed, field
from ...jobs.workspace.allocation import Shape
from ...jobs.workspace.markers import held_runs
from ...jobs.workspace.notes import bring_back
from ...jobs.workspace.stored_grid import FrozenGrid, freeze, write_grid
from ..backends.base import Rehearsal, Room
from ..loop.context import Context, make_backend
from ..loop.guard import choose_canary, set_canary
from ..loop.plan import check_world_size, shape_of
from . import deletion
from .actions import mark_held
from .backbone_check import check_backbones
from .data_check import DataCheck, look
from .declarations import declarations
from .precision import augments_on_cpu, capability_for, check_precision, faster, slow_on_cpu
from .summary import Summary, summary

FEW_STEPS = 5


class Prepared(Value, frozen=True, kw_only=True):
    """A grid that was read, checked and expanded; nothing is written yet."""

    grid: Grid
    expansion: Expansion
    frozen: FrozenGrid
    text: bytes
    warnings: list[str]
    shape: Shape
    """Of the allocations, and how many runs one hosts."""
    room: Room
    rehearsal: Rehearsal = field(default_factory=Rehearsal)
    data: DataCheck


def prepare(
    config: Config,
    source: str,
    *,
    changes: Given,
    max_runs: int,
    at: float,
    backend: str | None = None,
    choose: Callable[[Expansion], Expansion] | None = None,
) -> Prepared:
    """Read, check and expand a grid; neither workspace nor ledger need exist.

    Args:
        config: names the backend's settings, against which the resources are checked.
        source: a file or a built-in grid's name.
        changes: `--set` values by dotted path.
        max_runs: the largest grid to take.
        at: the time of submission.
        backend: where the runs go, by default as the grid or the configuration says.
        choose: leaves runs of the expansion out.

    Raises:
        BadInput: with every mistake.
        SchedulerUnreachable: what the site allows could not be asked; nothing was done.
    """
    intake = take_in(source, changes=changes, max_runs=max_runs, data_root=config.data_root)
    grid, document = intake.grid, intake.document
    expansion = choose(intake.expansion) if choose is not None else intake.expansion
    name = backend or grid.backend_name(config.get("backend"))
    frozen = freeze(grid, expansion, at=at, backend=name, site=_site(config, grid, document, name))
    frozen, shape, room, rehearsal = _placed(config, frozen, document)
    problems = check_backbones(expansion, document, halves=grid.halve_micro_batch)
    problems += _world_size_problems(shape, expansion, document)
    problems += _without_a_step(expansion, document)
    problems += _without_average(grid, expansion, document)
    more, hints = _precision(shape, expansion, document)
    if problems + more:
        raise BadInput(problems + more)
    text = json.dumps(document.data, indent=1, default=str).encode()
    warnings = [*_without_baseline(grid, expansion), *_warnings(expansion), *hints]
    if shape.backend == "local":
        warnings += _shared_memory(shape, room, expansion)
    return Prepared(
        grid=grid,
        expansion=expansion,
        frozen=frozen,
        text=text,
        warnings=warnings,
        shape=shape,
        room=room,
        rehearsal=rehearsal,
        data=look(
            expansion,
            document,
            data_root=config.data_root,
            sets=grid.data.sets,
            is_here=shape.backend == "local",
        ),
    )


def _placed(
    config: Config, frozen: FrozenGrid, document: Document
) -> tuple[FrozenGrid, Shape, Room, Rehearsal]:
    """Return the grid with the GPUs that its runs get, and where they go."""
    backend = make_backend(frozen.settings.backend, config)
    try:
        shape = shape_of(frozen.settings, backend)
        room = backend.room(shape, frozen.settings)
        rehearsal = backend.rehearse(shape, room) or Rehearsal()
        if backend.nodes_change:
            # What a run trains on does not change with them.
            resources = changed(frozen.settings.resources, gpus_per_node=shape.gpus)
            frozen = changed(frozen, settings=changed(frozen.settings, resources=resources))
        return frozen, shape, room, rehearsal
    except BadInput as error:
        found = error.problems[0]
        fields = settings_of(backend.name).model_fields
        where = ("backend", backend.name) if found.key in fields else ("resources",)
        raise BadInput(
            document.problem((*where, *filter(None, [found.key])), found.message, found.fix)
        ) from None


def _site(config: Config, grid: Grid, document: Document, name: str) -> Given:
    """Return the backend's settings: the configuration's, with the grid's on top."""
    left = settings_of(name).not_stored
    usual = {key: value for key, value in configured(config, name).items() if key not in left}
    return {**usual, **grid.site(name)}


def _world_size_problems(shape: Shape, expansion: Expansion, document: Document) -> list[Problem]:
    problems: list[Problem] = []
    known = {cell.spec.settings.recipe.virtual_ranks for cell in expansion.cells}
    for virtual_ranks in sorted(known):
        found = check_world_size(shape, virtual_ranks)
        if found is not None:
            problem = document.problem(("resources",), found.message, found.fix)
            problems += [problem] if problem not in problems else []
    return problems


def _precision(
    shape: Shape, expansion: Expansion, document: Document
) -> tuple[list[Problem], list[str]]:
    """Return the precisions that the GPUs cannot do, and hints at what is faster."""
    capability = capability_for(shape)
    asked = {
        (cell.spec.settings.recipe.precision, cell.labels["recipe"]) for cell in expansion.cells
    }
    problems, hints = [], []
    for precision, recipe in sorted(asked):
        found = check_precision(precision, capability)
        if found is not None:
            problems.append(document.problem(("train", "precision"), found.message, found.fix))
        hints.append(faster(precision, capability, recipe))
        hints.append(slow_on_cpu(precision, shape.gpus))
    recipes = [cell.spec.settings.recipe for cell in expansion.cells]
    for pipeline, policy in dict.fromkeys((one.pipeline, one.auto_augment) for one in recipes):
        hints.append(augments_on_cpu(pipeline, policy, shape.gpus))
    return list(dict.fromkeys(problems)), [hint for hint in dict.fromkeys(hints) if hint]


def _without_a_step(expansion: Expansion, document: Document) -> list[Problem]:
    problems: list[Problem] = []
    for cell in expansion.cells:
        settings = cell.spec.settings
        images = settings.dataset.trained_on
        if not settings.recipe.steps_per_epoch(images):
            name = cell.labels["dataset"]
            message = f"{name}: {images} training images are fewer than one batch"
            fix = f"Set a batch_size below {settings.recipe.batch_size}, or drop_last: false"
            problem = document.problem(("train", "batch_size"), message, fix)
            problems += [problem] if problem not in problems else []
    return problems


def _without_average(grid: Grid, expansion: Expansion, document: Document) -> list[Problem]:
    """Return what keeps a declared `ema_last` from ever having a score."""
    if grid.compare is None or grid.compare.select != "ema_last":
        return []
    if all(cell.spec.settings.recipe.ema_decay is not None for cell in expansion.cells):
        return []
    message = "ema_last needs averaged (EMA) weights, but not every recipe keeps them"
    return [document.problem(("compare", "select"), message, "Set train: {ema_decay: 0.999}")]


def _shared_memory(shape: Shape, room: Room, expansion: Expansion) -> list[str]:
    """Return why runs on this machine get fewer loader workers than its cores would allow."""
    ranks = room.lanes * shape.ranks
    items = {
        (settings.recipe.pipeline, share_bytes(settings))
        for settings in (cell.spec.settings for cell in expansion.cells)
    }
    free, cores = free_bytes(), len(os.sched_getaffinity(0)) // ranks
    notes = [
        fitted(
            cores,
            pipeline=pipeline,
            share_bytes=share,
            free=free,
            ranks=ranks,
        ).note
        for pipeline, share in sorted(items, key=lambda item: -item[1])
    ]
    return [note for note in notes if note][:1]


def _warnings(expansion: Expansion) -> list[str]:
    """Return what is odd in the grid's cells, each once."""
    return list(dict.fromkeys(text for cell in expansion.cells for text in _odd(cell)))


def _without_baseline(grid: Grid, expansion: Expansion) -> list[str]:
    """Return that what a grid declares cannot be compared, as no cell is the baseline."""
    if grid.compare is None or grid.compare.baseline == EACH:
        return []
    name = grid.compare.baseline
    heads = {cell.labels["head"] for cell in expansion.cells}
    there = any(cell.is_baseline for cell in expansion.cells) if name == BASELINE else name in heads
    if there:
        return []
    fix = "Add it to heads, or name another: compare: {baseline: HEAD}"
    return [f"compare: no head is the baseline {name}, so nothing will be compared. {fix}"]


def _odd(cell: Cell) -> Iterator[str]:
    """Yield what is odd in a cell, though it can be trained."""
    settings, recipe = cell.spec.settings, cell.spec.settings.recipe
    steps = recipe.steps_per_epoch(settings.dataset.trained_on)
    if steps < FEW_STEPS:
        name, size = cell.labels["dataset"], recipe.batch_size
        yield f"{name}: batch size {size} leaves only {steps} optimizer step(s) per epoch"
    falls = recipe.decay_epochs
    if recipe.schedule == "step" and isinstance(falls, tuple) and min(falls) >= recipe.epochs:
        shown = ", ".join(map(str, falls))
        yield f"decay_epochs [{shown}]: the rate never falls in {recipe.epochs} epoch(s)"


def submit(
    context: Context,
    prepared: Prepared,
    *,
    hold: bool = False,
    canary: bool = False,
    amend: str | None = None,
    counted: str | None = None,
) -> Summary:
    """Store a grid and its runs; idempotent. Return the summary as it was before.

    Args:
        context: workspace and ledger.
        prepared: the grid.
        hold: whether its runs are held, from before anybody could start one.
        canary: whether one run per backbone, dataset and head goes first.
        amend: why `compare`, or what is compared, changes although runs have started.
        counted: the goal by which seeds were added, counted from the deviation alone.

    Raises:
        BadInput: it changes, and no reason is given; nothing was stored.
    """
    # One of the same id may be half deleted.
    deletion.finish(context)
    document = summary(context, prepared)
    declared = declarations(context, prepared.frozen, amend, counted)
    frozen = changed(
        prepared.frozen,
        settings=changed(prepared.frozen.settings, declarations=declared, submitted_by=user_here()),
    )
    chosen = {run[0] for run in frozen.runs}
    # A run follows its newest grid; one that is held in another stays held.
    held = chosen if hold else _held_elsewhere(context, chosen)
    first = choose_canary(frozen, chosen) if canary else None

    def store() -> None:
        # Its markers come before the grid: who finds it stored may start its runs.
        make_folder(context.workspace.grid(frozen.grid_id))
        if held:
            mark_held(context, frozen.grid_id, held, held=True)
        if first is not None:
            set_canary(context.workspace, frozen.grid_id, first)
        write_grid(context.workspace, frozen, prepared.text)

    store()
    bring_back(context.workspace, frozen.grid_id)
    context.ledger.add_grid(frozen)
    if not context.workspace.grid(frozen.grid_id).is_dir():
        # Between the two lines somebody deleted the grid of this id that was there.
        store()
    return document


def _held_elsewhere(context: Context, chosen: set[str]) -> set[str]:
    with reading(context.ledger.engine) as connection:
        grids = set(queries.grid_settings(connection))
    return held_runs(context.workspace, grids) & chosen

"""Take in the results of runs that were trained elsewhere, as a grid whose runs are all over."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...db import lookups, queries, selected
from ...db.engine import reading
from ...jobs.config.host import user_here
from ...jobs.documents import Document
from ...jobs.errors import BadInput, NothingMatched, Problem
from ...jobs.imports.forms import form_of, read
from ...jobs.imports.layout import LABELS, Layout
from ...jobs.imports.record import Record
from ...jobs.imports.runs import FoundRun, Key, runs_of
from ...jobs.names import name_problem, one_line
from ...jobs.run.selector import axis_text
from ...jobs.run.spec import canonical, digest
from ...jobs.units import ranges
from ...jobs.values import Value, field
from ...jobs.workspace.grid_settings import GridSettings, ResourceSettings
from ...jobs.workspace.imported import ImportedFrom, ImportedRun, ImportedScore
from ...jobs.workspace.stored_grid import (
    FrozenCell,
    FrozenGrid,
    grid_ids,
    read_grid,
    read_settings,
    write_grid,
)
from ..loop.context import Context
from . import deletion
from .imported_cells import cells_of

SCHEMA_VERSION = 1
# Where it was trained, in place of a backend's name.
ELSEWHERE = "elsewhere"

Progress = Callable[[int], None]


class ImportedCell(Document, frozen=True, kw_only=True):
    """A cell of what was read."""

    cell_id: str
    """Its id."""
    backbone: str
    """As the files call it."""
    dataset: str
    """As the files call it."""
    head: str
    """As the files call it."""
    recipe: str
    """As the files call it, or imported."""
    axes: dict[str, str]
    """Further columns by which the cells differ."""
    seeds: list[int]
    """All of the cell."""
    without_score: list[int]
    """Seeds of which no score was found."""
    diverged: list[int]
    """Seeds with a score that is not finite."""


class Import(Document, frozen=True, kw_only=True):
    """What was read, and what comes of it."""

    schema_version: int
    """Raised when a key is removed or changes its meaning."""
    grid_id: str
    """Of the grid that the runs are stored as."""
    name: str
    """Of the grid."""
    form: str
    """Of what was read, such as csv."""
    files: list[str]
    """That were read, as they were named."""
    into: str | None
    """The grid whose cells get the seeds; None: the cells are their own."""
    runs: int
    """All that were read."""
    new: int
    """Those of the runs that the workspace did not have."""
    metrics: list[str]
    """Set and metric, such as `test/top1`."""
    epochs: list[int]
    """Last epochs of the runs; 0: the files do not say."""
    left_out: int
    """Records without a label or a seed, with `--skip-incomplete`."""
    cells: list[ImportedCell]
    """In the order of the files."""


class Wanted(Value, frozen=True, kw_only=True):
    """What to read, and how."""

    paths: Sequence[Path]
    form: str | None = None
    """None: as each path looks."""
    name: str | None = None
    """Of the grid; None: that of the first path."""
    layout: Layout = field(default_factory=Layout)
    only: Mapping[str, str] = field(default_factory=dict)
    """Column -> the value that records must have."""
    skip_incomplete: bool = False
    into: str | None = None
    """A grid whose cells get the seeds."""


class PreparedImport(Value, frozen=True, kw_only=True):
    """Results that were read and checked; nothing is written yet."""

    frozen: FrozenGrid
    summary: Import


def prepare_import(
    context: Context | None,
    wanted: Wanted,
    *,
    at: float | None = None,
    progress: Progress = lambda count: None,
) -> PreparedImport:
    """Read results and make a grid of them.

    Args:
        context: workspace and ledger; None: there is no workspace yet.
        wanted: what to read.
        at: time of the import, by default now.
        progress: is told how many records were read.

    Raises:
        BadInput: with every mistake; its name is taken, or a seed is there already.
        NothingMatched: there is no grid to import into, or nothing to import.
    """
    name = _name(wanted)
    forms, records = _records(wanted, progress)
    records, left_out = _chosen(records, wanted)
    found = runs_of(records, wanted.layout)
    cells = cells_of(context, name, found, wanted.into)
    source = ImportedFrom(
        form=", ".join(dict.fromkeys(forms)),
        files=[one_line(str(path)) for path in wanted.paths],
        into=wanted.into,
    )
    frozen = _grid(name, found, cells, source, time.time() if at is None else at)
    new = len(frozen.imported) if context is None else _count_new(context, frozen)
    summary = _summary(frozen, found, cells, left_out=left_out, new=new)
    return PreparedImport(frozen=frozen, summary=summary)


def store_import(context: Context, prepared: PreparedImport) -> None:
    """Store what was read; what is there already stays. A kill leaves all of it, or nothing.

    Raises:
        BadInput: an import of this name with other results was cut off; it is there now.
    """
    deletion.finish(context)
    frozen = prepared.frozen
    name = frozen.settings.name
    if others := set(_cut_off(context, name)) - {frozen.grid_id}:
        for grid_id in others:
            if (stored := read_grid(context.workspace, grid_id)) is not None:
                context.ledger.add_grid(stored)
        raise _name_is_taken(context, name, min(others))
    write_grid(context.workspace, frozen, _text(frozen.settings))
    context.ledger.add_grid(frozen)


def _cut_off(context: Context, name: str) -> list[str]:
    """Return the imports of this name that were killed before the ledger had them.

    Nobody has seen one; a ledger that is made anew would bring it back beside what replaced it.
    """
    with reading(context.ledger.engine) as connection:
        known = queries.grid_settings(connection)
    return [
        grid_id
        for grid_id in grid_ids(context.workspace)
        if grid_id not in known
        and (settings := read_settings(context.workspace, grid_id)) is not None
        and settings.imported is not None
        and settings.name == name
    ]


def _text(settings: GridSettings) -> bytes:
    """Return what stands in the place of a grid file: nothing can be submitted from it."""
    source = settings.imported
    files = [] if source is None else source.files
    return f"# Imported from: {', '.join(files)}\n".encode()


def _name(wanted: Wanted) -> str:
    name = wanted.name or wanted.paths[0].absolute().stem
    if problem := name_problem(name):
        fix = "" if wanted.name else ". Give one: --name NAME"
        raise BadInput(f"--name {name!r}: {problem}{fix}")
    return name


def _records(wanted: Wanted, progress: Progress) -> tuple[list[str], list[Record]]:
    forms: list[str] = []
    records: list[Record] = []
    for path in wanted.paths:
        forms.append(wanted.form or form_of(path))
        for record in read(path, forms[-1]):
            records.append(record)
            progress(len(records))
    return forms, records


def _chosen(records: list[Record], wanted: Wanted) -> tuple[list[Record], int]:
    """Return the records that are asked for, and how many were left out for want of a label."""
    layout = wanted.layout
    kept = [
        record
        for record in records
        if all(str(layout.filled(record).get(name)) == text for name, text in wanted.only.items())
    ]
    if not kept:
        what = "no record has what --only asks for" if records else "no run was found"
        raise NothingMatched(f"{', '.join(map(str, wanted.paths))}: {what}")
    if not wanted.skip_incomplete:
        return kept, 0
    needed = [name for name in (*LABELS, "seed") if name != "recipe"]
    whole = [
        record for record in kept if all(layout.text(record, name) is not None for name in needed)
    ]
    return whole, len(kept) - len(whole)


def _run(found: FoundRun) -> ImportedRun:
    scores: dict[tuple[int, str], dict[str, float]] = {}
    for (epoch, (set_name, metric)), value in sorted(found.scores.items()):
        scores.setdefault((epoch, set_name), {})[metric] = value
    return ImportedRun(
        source=one_line(found.source),
        scores=[
            ImportedScore(epoch=epoch, set=set_name, metrics=metrics)
            for (epoch, set_name), metrics in scores.items()
        ],
        diverged=found.diverged,
    )


def _grid(
    name: str,
    found: Mapping[Key, FoundRun],
    cells: Mapping[Key, FrozenCell],
    source: ImportedFrom,
    at: float,
) -> FrozenGrid:
    """Return the grid of these runs. Other scores make another run of them."""
    made = {cell.cell_id: cell for cell in cells.values()}
    order = {cell_id: index for index, cell_id in enumerate(made)}
    imported: dict[str, ImportedRun] = {}
    runs: list[tuple[str, int, int, str | None]] = []
    for key, one in found.items():
        cell_id, run = cells[key].cell_id, _run(one)
        scores = [[score.epoch, score.set, score.metrics] for score in run.scores]
        run_id = digest(canonical(["imported", cell_id, key.seed, scores, run.diverged]))
        imported[run_id] = run
        runs.append((run_id, order[cell_id], key.seed, None))
    grid_id = f"{name}-{digest(canonical(sorted(imported)), 8)}"
    settings = _settings(grid_id, name, source, at)
    return FrozenGrid(settings=settings, cells=list(made.values()), runs=runs, imported=imported)


def _settings(grid_id: str, name: str, source: ImportedFrom, at: float) -> GridSettings:
    return GridSettings(
        grid_id=grid_id,
        name=name,
        submitted_at=at,
        retries=0,
        resources=ResourceSettings(),
        checkpoint_every_s=0,
        evaluate_every=1,
        backend=ELSEWHERE,
        submitted_by=user_here(),
        imported=source,
    )


# The workspace ------------------------------------------------------------------------------------


def _count_new(context: Context, frozen: FrozenGrid) -> int:
    """Return how many of the runs are new.

    Raises:
        BadInput: another grid has the name, or another run is of the same cell and seed.
    """
    name = frozen.settings.name
    with reading(context.ledger.engine) as connection:
        others = selected.resolve_grids(connection, name)
        seeds = lookups.seeds_of_cells(connection, {cell.cell_id for cell in frozen.cells})
    if others and frozen.grid_id not in others:
        raise _name_is_taken(context, name, others[0])
    if problems := _taken(frozen, seeds):
        raise BadInput(problems)
    return len(frozen.imported) - len(context.ledger.known(list(frozen.imported)))


def _name_is_taken(context: Context, name: str, grid_id: str) -> BadInput:
    return BadInput(
        f"there is a grid {name} already, with other runs. Import under another name with --name,"
        f" or remove it first: vtjobs delete {grid_id}{context.where}"
    )


def _taken(frozen: FrozenGrid, seeds: Mapping[str, Mapping[int, str]]) -> list[Problem]:
    """Return the seeds that other runs of the same cells have."""
    both: dict[int, list[int]] = {}
    for run_id, cell, seed, _ in frozen.runs:
        other = seeds.get(frozen.cells[cell].cell_id, {}).get(seed)
        if other not in (None, run_id):
            both.setdefault(cell, []).append(seed)
    problems = []
    for cell, numbers in both.items():
        labels = frozen.cells[cell].labels
        what = f"{labels['backbone']} {labels['dataset']} {labels['head']}"
        message = f"{what} has runs of these seeds already: {ranges(sorted(numbers))}"
        problems.append(Problem(message=message, fix="Number them apart: --seed-offset 1000"))
    return problems


def _summary(
    frozen: FrozenGrid,
    found: Mapping[Key, FoundRun],
    cells: Mapping[Key, FrozenCell],
    *,
    left_out: int,
    new: int,
) -> Import:
    source = frozen.settings.imported
    assert source is not None
    members: dict[str, list[tuple[int, FoundRun]]] = {}
    for key, run in found.items():
        members.setdefault(cells[key].cell_id, []).append((key.seed, run))
    return Import(
        schema_version=SCHEMA_VERSION,
        grid_id=frozen.grid_id,
        name=frozen.settings.name,
        form=source.form,
        files=source.files,
        into=source.into,
        runs=len(frozen.runs),
        new=new,
        metrics=sorted({"/".join(metric) for run in found.values() for _, metric in run.scores}),
        epochs=sorted({run.last_epoch for run in found.values()}),
        left_out=left_out,
        cells=[_described(cell, members[cell.cell_id]) for cell in frozen.cells],
    )


def _described(cell: FrozenCell, members: Sequence[tuple[int, FoundRun]]) -> ImportedCell:
    return ImportedCell(
        cell_id=cell.cell_id,
        **cell.labels,
        axes={name: axis_text(value) for name, value in cell.axes.items()},
        seeds=sorted(seed for seed, _ in members),
        without_score=sorted(seed for seed, run in members if not run.scores and not run.diverged),
        diverged=sorted(seed for seed, run in members if run.diverged),
    )

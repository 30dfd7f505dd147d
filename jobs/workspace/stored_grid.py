"""A submitted grid as it lies in the workspace: its text, its settings, its cells and its runs."""

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..atomic_files import make_folder, read_json, read_mapping, to_json, write_over
from ..documents import from_plain, to_plain
from ..errors import DamagedFile
from ..run.comparing import CompareSettings
from ..run.design import StudyDesign
from ..run.spec import Axes, CellSpec, RunSpec, canonical, digest, seed_label, seeds_of
from ..values import Value, field
from .grid_settings import GridSettings, ResourceSettings
from .imported import RESULTS, ImportedRuns
from .paths import RunFolder, Workspace

if TYPE_CHECKING:
    # Reading commands read frozen grids; only submission needs the schema and its pydantic.
    from pydantic import BaseModel

    from ..grid.expansion import Expansion
    from ..grid.schema import Grid

T = TypeVar("T")
# In a stored grid's folder: the text of each file that its own parts are in.
SOURCES = "sources.json"


class FrozenCell(Value, frozen=True, kw_only=True):
    """A cell as stored."""

    cell_id: str
    match_id: str
    stage: str
    labels: dict[str, str]
    axes: Axes
    is_baseline: bool
    parent: int | None
    spec: CellSpec | None
    """None: its runs were imported, and nobody knows all that was set for them."""


class FrozenGrid(Value, frozen=True, kw_only=True):
    """What the workspace knows of a grid."""

    settings: GridSettings
    cells: list[FrozenCell]
    runs: list[tuple[str, int, int, str | None]]
    """run_id, index of the cell, seed or index in the design, the parent's run_id."""
    streams: dict[int, dict[str, int]] = field(default_factory=dict)
    """Place in the design -> value of each stream; empty where one seed moves them all."""
    sources: dict[str, str] = field(default_factory=dict)
    """File or module of the lab's own parts -> its text; left out when a grid is read."""
    imported: ImportedRuns = field(default_factory=dict)
    """Results of its runs, where these were trained elsewhere."""

    @property
    def grid_id(self) -> str:
        return self.settings.grid_id

    def seed_of(self, index: int) -> tuple[int, str]:
        """Return a run's seed and "", or its index in the design and the canonical JSON of its
        streams.

        Where the streams of an index happen to agree, it is the run of that seed.
        """
        streams = self.streams.get(index)
        if streams is None:
            return index, ""
        seed = seed_label(streams)
        return (index, canonical(streams)) if seed is None else (seed, "")


def freeze(
    grid: "Grid",
    expansion: "Expansion",
    *,
    at: float,
    backend: str = "local",
    site: dict[str, Any] | None = None,
) -> FrozenGrid:
    """Take down what a grid expands to, where it goes, and the settings of that site."""
    grid_id = f"{grid.name}-{expansion.grid_hash}"
    settings = GridSettings(
        grid_id=grid_id,
        name=grid.name,
        description=grid.description,
        submitted_at=at,
        retries=grid.retries,
        resources=_stored(grid.resources, ResourceSettings),
        checkpoint_every_s=grid.checkpoint_every,
        evaluate_every=grid.evaluate_every,
        record_depth=grid.record_depth,
        sets=grid.data.sets,
        metrics=expansion.metrics,
        variance=_stored(grid.variance, StudyDesign) if grid.variance is not None else None,
        compare=_stored(grid.compare, CompareSettings) if grid.compare is not None else None,
        max_running=grid.max_running,
        halve_micro_batch=grid.halve_micro_batch,
        backend=backend,
        site=site or {},
        virtual_ranks=math.gcd(
            *{cell.spec.settings.recipe.virtual_ranks for cell in expansion.cells}
        ),
        paths=expansion.paths,
        excluded=expansion.excluded,
    )
    cells = [
        FrozenCell(
            cell_id=cell.cell_id,
            match_id=cell.match_id,
            stage=cell.stage,
            labels=cell.labels,
            axes=cell.axes,
            is_baseline=cell.is_baseline,
            parent=cell.parent,
            spec=cell.spec,
        )
        for cell in expansion.cells
    ]
    return FrozenGrid(
        settings=settings,
        cells=cells,
        runs=[(r.run_id, r.cell, r.seed, r.parent) for r in expansion.runs],
        streams=expansion.streams,
        sources=expansion.sources,
    )


def _stored(given: "BaseModel", kind: type[T]) -> T:
    return from_plain(given.model_dump(mode="json"), kind)


def write_grid(workspace: Workspace, frozen: FrozenGrid, text: bytes) -> None:
    """Store a grid.

    What is there already stays, but for its text and the settings, where the newest hold.
    """
    folder = make_folder(workspace.grid(frozen.grid_id))
    write_over(folder / "grid.yaml", text)
    cells = [
        {
            "cell_id": cell.cell_id,
            "match_id": cell.match_id,
            "stage": cell.stage,
            "labels": cell.labels,
            "axes": cell.axes,
            "is_baseline": cell.is_baseline,
            "parent": cell.parent,
            "spec": None if cell.spec is None else cell.spec.parts,
        }
        for cell in frozen.cells
    ]
    if frozen.imported:
        write_over(folder / RESULTS, to_json(to_plain(frozen.imported)))
    if frozen.sources:
        # Read again where the grid is submitted from here, as `topup` does.
        write_over(folder / SOURCES, to_json(frozen.sources))
    stored = {"cells": cells, "runs": frozen.runs, "streams": frozen.streams}
    if not _is_sound(folder / "runs.json"):
        write_over(folder / "runs.json", json.dumps(stored).encode())
    # Last: a folder without it is a submission that was cut off, and counts for nothing.
    write_over(folder / "grid.json", to_json(to_plain(frozen.settings)))


def stored_sources(folder: Path) -> dict[str, str]:
    """Return the files of own parts that were stored with a grid: as the grid names each -> text.

    Args:
        folder: of a stored grid; any other one has none.

    Raises:
        DamagedFile: they cannot be read.
    """
    if not (folder / "grid.json").is_file() or not (folder / "runs.json").is_file():
        return {}
    path = folder / SOURCES
    try:
        return from_plain(read_mapping(path), dict[str, str])
    except ValueError as error:
        raise _damaged(path, error) from None


def first_submitted_at(workspace: Workspace, settings: GridSettings) -> float:
    """Return when a stored grid was submitted first, in seconds since 1970.

    Its runs are written once, its settings at each submission. A copy of the workspace that kept no
    times has that of the last one alone.
    """
    written = (workspace.grid(settings.grid_id) / "runs.json").stat().st_mtime
    # A file's time may be a few milliseconds behind the clock.
    return written if written < settings.submitted_at - 1.0 else settings.submitted_at


def _is_sound(path: Path) -> bool:
    """Return whether a file of runs is there and can be read."""
    try:
        return bool(_read_runs(path))
    except DamagedFile:
        return False


def read_grid(workspace: Workspace, grid_id: str) -> FrozenGrid | None:
    """Read a stored grid, or None where its submission was cut off."""
    folder = workspace.grid(grid_id)
    settings = read_settings(workspace, grid_id)
    stored = _read_runs(folder / "runs.json")
    if settings is None or not stored:
        return None
    return FrozenGrid(
        settings=settings,
        cells=[_cell(cell) for cell in stored["cells"]],
        runs=[tuple(run) for run in stored["runs"]],
        streams=_streams(stored),
        imported=_imported(folder) if settings.imported is not None else {},
    )


def _cell(stored: dict[str, Any]) -> FrozenCell:
    spec = stored["spec"]
    return FrozenCell(**{**stored, "spec": None if spec is None else CellSpec(**spec)})


def _imported(folder: Path) -> ImportedRuns:
    path = folder / RESULTS
    try:
        return from_plain(read_mapping(path), ImportedRuns)
    except ValueError as error:
        reason = str(error) if isinstance(error, DamagedFile) else f"{path} is damaged ({error!r})"
        raise DamagedFile(f"{reason}. To write it again, import the files again") from None


def read_settings(workspace: Workspace, grid_id: str) -> GridSettings | None:
    """Return the settings of a stored grid, or None where its submission was cut off.

    Raises:
        DamagedFile: they cannot be read.
    """
    path = workspace.grid(grid_id) / "grid.json"
    try:
        found = read_json(path)
        return None if found is None else from_plain(found, GridSettings)
    except ValueError as error:
        raise _damaged(path, error) from None


def _read_runs(path: Path) -> dict[str, Any]:
    """Return the cells, runs and streams of a stored grid, empty where there is no such file."""
    try:
        stored = read_mapping(path)
        for cell in stored.get("cells", ()):
            _cell(cell)
        is_sound = not stored or (stored["cells"] and all(len(run) == 4 for run in stored["runs"]))
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path, error) from None
    if not is_sound:
        raise _damaged(path, ValueError("no runs"))
    return stored


def _damaged(path: Path, error: Exception) -> DamagedFile:
    reason = str(error) if isinstance(error, DamagedFile) else f"{path} is damaged ({error!r})"
    return DamagedFile(f"{reason}. To write it again, submit the grid file again")


def _streams(stored: dict[str, Any]) -> dict[int, dict[str, int]]:
    return {int(index): streams for index, streams in stored.get("streams", {}).items()}


def write_spec(workspace: Workspace, grid_id: str, run_id: str) -> None:
    """Write a run's description into its folder, where it is not there yet or is damaged.

    Raises:
        KeyError: the grid, or the run in it, is not stored.
    """
    folder = workspace.run(run_id)
    if _describes(folder.spec, run_id):
        return
    stored = read_mapping(workspace.grid(grid_id) / "runs.json")
    run = next((run for run in stored.get("runs", ()) if run[0] == run_id), None)
    if run is None:
        raise KeyError(f"grid {grid_id} has no run {run_id}")
    _, cell, seed, parent = run
    spec = CellSpec(**stored["cells"][cell]["spec"])
    make_folder(folder.path)
    seeds = canonical(_streams(stored).get(seed) or seeds_of(seed))
    # A run is named by its description, so whoever else writes it writes the same.
    write_over(folder.spec, spec.text(seeds=seeds, init_from=parent).encode())


def _describes(spec: Path, run_id: str) -> bool:
    """Return whether a file holds the description that the run is named by."""
    try:
        return digest(spec.read_text("utf-8")) == run_id
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def read_spec(folder: RunFolder) -> RunSpec:
    """Return a run's description.

    Raises:
        DamagedFile: it is damaged, or of a newer version.
    """
    try:
        return RunSpec.parse(folder.spec.read_text("utf-8"))
    except ValueError as error:
        raise DamagedFile(f"{folder.spec} is damaged: {error}") from None


def own_part_file(workspace: Workspace, grid_id: str, name: str) -> str:
    """Return the name of the file that a grid takes a class or function of the lab from.

    Returns:
        It without its folder; "" where the grid's text does not say, or names several.
    """
    try:
        text = (workspace.grid(grid_id) / "grid.yaml").read_text("utf-8", "replace")
    except OSError:
        return ""
    found = set(re.findall(rf"""([^\s"'\[\]{{}},:#]+):{re.escape(name)}\b""", text))
    if len(found) != 1:
        return ""
    (module,) = found
    return Path(module).name if module.endswith(".py") else f"{module.rpartition('.')[2]}.py"


def grid_ids(workspace: Workspace) -> list[str]:
    """Return the ids of the stored grids."""
    try:
        return sorted(
            entry.name for entry in workspace.grids.iterdir() if (entry / "grid.json").exists()
        )
    except FileNotFoundError:
        return []

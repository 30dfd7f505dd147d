"""Refuse runs whose data is not there, before they wait in a queue to find out."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...db import lookups
from ...db.engine import reading
from ...jobs.errors import BadInput, Problem
from ...jobs.grid.catalogue import datasets
from ...jobs.grid.dataset_files import missing, needs_files, remedy
from ...jobs.grid.expansion import Expansion
from ...jobs.run.states import RunState
from ...jobs.strict_yaml import Document
from ...jobs.values import Value
from ..loop.context import Context

if TYPE_CHECKING:
    from .submit import Prepared


class DataCheck(Value, frozen=True, kw_only=True):
    """What of a grid's data is seen from this machine.

    Image folders and weights are not part of it: a grid with one that is missing has no ids.
    """

    absent: dict[int, Problem]
    """Index of a cell -> what its dataset lacks."""
    unseen: frozenset[int]
    """Cells whose data lies in a folder that is not on this machine."""
    folder: Path

    @property
    def is_complete(self) -> bool:
        """Whether all data was seen."""
        return not (self.absent or self.unseen)


def look(
    expansion: Expansion,
    document: Document,
    *,
    data_root: Path,
    sets: Sequence[str],
    is_here: bool,
) -> DataCheck:
    """Look for the known datasets of a grid, each once.

    Args:
        expansion: the grid's cells.
        document: the grid's file.
        data_root: the data folder of the nodes.
        sets: further evaluation sets of the grid.
        is_here: whether the runs go to this machine. The data folder of another one is looked into
            if this machine has it too, as on a shared file system.
    """
    is_visible = is_here or data_root.is_dir()
    named = {text: _with_files(text) for text in {cell.spec.dataset for cell in expansion.cells}}
    needed = {
        index: name
        for index, cell in enumerate(expansion.cells)
        if (name := named[cell.spec.dataset])
    }
    if not is_visible:
        return DataCheck(absent={}, unseen=frozenset(needed), folder=data_root)
    absent: dict[int, Problem] = {}
    lacks = {name: missing(name, data_root, sets) for name in set(needed.values())}
    for index, name in needed.items():
        if (lack := lacks[name]) is not None:
            message = f"dataset {name} is not in {data_root} ({lack})"
            fix = remedy(name, data_root, sets)
            if not is_here:
                fix += ". If the nodes have it in a folder of their own: --no-data-check"
            where = expansion.cells[index].entries[1].path
            absent[index] = document.problem(where, message, fix)
    return DataCheck(absent=absent, unseen=frozenset(), folder=data_root)


def _with_files(dataset: str) -> str:
    """Return the name of a known dataset that has files, or nothing; `dataset` is JSON."""
    name = str(json.loads(dataset)["name"])
    return name if name in datasets() and needs_files(name) else ""


def require_data(context: Context | None, prepared: "Prepared") -> str | None:
    """Refuse a grid with runs to start whose data is not there.

    Returns:
        What could not be checked, as a warning.

    Raises:
        BadInput: data is missing; nothing was done.
    """
    check = prepared.data
    cells = set(_cells_to_start(context, prepared))
    problems = [problem for index, problem in check.absent.items() if index in cells]
    if problems:
        raise BadInput(list(dict.fromkeys(problems)))
    if cells & check.unseen:
        return (
            f"the data could not be checked: {check.folder} is not on this machine. To look into a "
            "folder that it shares with the nodes, set VTJOBS_DATA or data: in vtjobs.yaml"
        )
    return None


def _cells_to_start(context: Context | None, prepared: "Prepared") -> Iterable[int]:
    runs = prepared.frozen.runs
    states: dict[str, RunState] = {}
    if context is not None:
        with reading(context.ledger.engine) as connection:
            states = lookups.states_of(connection, [run[0] for run in runs])
    waiting = (RunState.PENDING, RunState.BLOCKED)
    return (run[1] for run in runs if states.get(run[0], RunState.PENDING) in waiting)

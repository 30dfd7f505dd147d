"""Cells at a glance: how many runs stand where, and the scores, in two queries."""

from collections import defaultdict

from sqlalchemy import func, select

from ..jobs.run.selector import Selection
from ..jobs.run.states import RunState
from ..jobs.values import Value
from . import models as m
from .engine import Connection
from .selected import where


class CellCounts(Value, frozen=True, kw_only=True):
    """A cell's runs by state, and the scores of those that completed."""

    cell_id: str
    states: dict[str, int]
    values: list[float]
    """Without an order."""


def cell_counts(
    connection: Connection, selection: Selection, *, metric: str, set_name: str
) -> list[CellCounts]:
    """Return the cells of the selected runs; runs of variance studies do not count.

    Args:
        connection: to the ledger.
        selection: of runs.
        metric: of the scores.
        set_name: that they were made on.

    Raises:
        NothingMatched: a word is neither a grid nor the beginning of a run's id.
        BadInput: a condition's field is unknown.
    """
    chosen = where(connection, selection)
    runs, cells, results = m.runs.c, m.cells.c, m.results.c
    counted = (
        select(runs.cell_id, runs.state, func.count())
        .join(m.cells, cells.cell_id == runs.cell_id)
        .where(runs.streams == "", chosen)
        .group_by(runs.cell_id, runs.state)
    )
    scored = (
        select(runs.cell_id, results.last)
        .join(m.cells, cells.cell_id == runs.cell_id)
        .join(m.results, results.run_id == runs.run_id)
        .where(
            runs.streams == "",
            runs.state == RunState.COMPLETED,
            results.metric == metric,
            results.set_name == set_name,
            chosen,
        )
    )
    states: dict[str, dict[str, int]] = defaultdict(dict)
    for cell_id, state, count in connection.execute(counted).all():
        states[cell_id][state] = count
    values: dict[str, list[float]] = defaultdict(list)
    for cell_id, value in connection.execute(scored).all():
        values[cell_id].append(value)
    return [
        CellCounts(cell_id=cell_id, states=counts, values=values[cell_id])
        for cell_id, counts in states.items()
    ]


def marker(connection: Connection) -> tuple[float, ...]:
    """Return numbers of which one is another as soon as the ledger has taken something in.

    Who shows what the ledger has looks at these few first, instead of reading all of it again.
    """
    journals, grids = m.journals.c, m.grids.c
    asked = (
        select(func.max(m.events.c.id)),
        select(func.max(m.runs.c.changed_at)),
        select(func.count()).select_from(m.runs),
        select(func.sum(journals.read_bytes)),
        select(func.sum(func.length(grids.settings))),
        select(func.max(grids.submitted_at)),
    )
    return tuple(float(connection.execute(one).scalar() or 0) for one in asked)

"""From ledger rows to one row per cell.

N of planned, mean, sample standard deviation, gain over the baseline.
"""

import json
from collections import Counter
from typing import Any

from ...db import lookups, queries, records, reruns
from ...db.engine import reading
from ...db.ledger import Ledger
from ...jobs.errors import BadInput, suggest
from ...jobs.run.comparing import Select
from ...jobs.run.selector import Selection
from ...jobs.run.spec import BASELINE, EACH, Axes
from ...jobs.run.states import RunState
from ...jobs.values import changed
from ..stats.summary import describe
from . import epochs, without_value
from .best_marks import marks
from .cell import LABELS, Cell
from .epochs import Score
from .make_cell import About, make_cell
from .pair import gain_intervals
from .plan import ComparisonPlan


def report(
    ledger: Ledger,
    selection: Selection,
    *,
    metric: str = "top1",
    set_name: str = "test",
    select: Select = Select.LAST,
    with_specs: bool = False,
    every_stage: bool = False,
    baseline: str = BASELINE,
) -> list[Cell]:
    """Return the selected cells in the order of their grid; no number in it is ever NaN.

    Args:
        ledger: where the results are.
        selection: of runs.
        metric: of the scores.
        set_name: that they were made on.
        select: the epoch that counts.
        baseline: the head that gains are over, by its label; `each`: there are no gains.
        with_specs: whether each cell brings `specs`: its description, and those of the stages
            before it; `run_ids`, seed -> the completed run; `best_values`, seed -> its best
            epoch's value; and `evaluations`.
        every_stage: whether stages that others begin with have cells too; else only where the
            selection names stages or runs.

    Raises:
        NothingMatched: no run is selected.
        BadInput: no selected cell has the baseline's head, unless it is the supervised one; or the
            epoch is chosen by a set that is reported, or on which nothing was scored.
    """
    with reading(ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
        cells = queries.cell_rows(connection, {row.cell_id for row in rows}, selection)
        taught = {cell_id for cell_id, cell in cells.items() if _has_teacher(cell)}
        # A run that another one only learns from is not its beginning.
        begun = {row.run_id: row.parent for row in rows if row.parent and row.cell_id not in taught}
        cancelled = _cancelled(rows)
        named = any(condition.field in ("stage", "run") for condition in selection.conditions)
        if not named and not every_stage:
            rows = _last_stages(rows, begun)
        retried = {row.run_id for row in rows if row.tries_from}
        retried -= reruns.taken_back(connection, retried)
        redrawn = reruns.redrawn(connection, retried)
        results = _results(connection, rows, metric, set_name, select)
        is_own = without_value.is_own_metric(connection, metric, {row.grid_id for row in rows})
        counts = {}
        if with_specs:
            counts = lookups.count_evaluations(connection, results, set_name)
        tried = lookups.settings_tried(connection, {row.cell_id for row in rows})
        inexact = lookups.inexact_resumes(connection, [row.run_id for row in rows])
        before = _cells_before(
            connection, {row.cell_id: begun[row.run_id] for row in rows if row.run_id in begun}
        )
        cells |= queries.cell_rows(
            connection,
            {cell for chain in before.values() for cell in chain} - cells.keys(),
            selection,
        )
    grouped: dict[str, list[records.RunRow]] = {row.cell_id: [] for row in rows}
    for row in rows:
        if row.streams is None:
            grouped[row.cell_id].append(row)
    about = About(
        metric=metric,
        is_own_metric=is_own,
        set_name=set_name,
        select=select,
        results=results,
        inexact=inexact,
        # Runs of a study of streams are no replicates of each other: no mean over them is that of
        # a seed.
        apart=Counter(row.cell_id for row in rows if row.streams is not None),
        axes=axes_of({cell_id: cells[cell_id] for cell_id in grouped}),
        is_baseline=_baselines({cell_id: cells[cell_id] for cell_id in grouped}, baseline),
        baseline_head=baseline,
        with_specs=with_specs,
        cancelled=cancelled,
        retried=retried,
        redrawn=redrawn,
        evaluations=counts,
        tried=tried,
    )
    found = []
    for cell_id, members in grouped.items():
        chain = [cells[one] for one in (cell_id, *before.get(cell_id, ()))]
        found.append(make_cell(chain, members, about))
    return _with_gains(found)


def of_plan(
    ledger: Ledger, selection: Selection, plan: ComparisonPlan, *, with_specs: bool = False
) -> list[Cell]:
    """Return `report` with the metric, set, epoch and baseline of a plan."""
    return report(
        ledger,
        selection,
        metric=plan.metric,
        set_name=plan.set,
        select=plan.select,
        baseline=plan.baseline,
        with_specs=with_specs,
    )


def planned(
    ledger: Ledger, selection: Selection, plan: ComparisonPlan, *, with_specs: bool = False
) -> list[Cell]:
    """Return `of_plan`, each cell with its `marks` and `gain_interval`."""
    cells = of_plan(ledger, selection, plan, with_specs=with_specs)
    cells = [changed(cell, planned=plan.planned.get(cell.cell_id, cell.planned)) for cell in cells]
    intervals = gain_intervals(cells, plan)
    return [
        changed(cell, marks=found, gain_interval=intervals.get(cell.cell_id))
        for cell, found in zip(cells, marks(cells, plan), strict=True)
    ]


def described(cell: Cell) -> Cell:
    """Return a cell with the description of its seeds."""
    return changed(cell, description=describe(cell.values, better=cell.better))


def _results(
    connection: Any, rows: list[records.RunRow], metric: str, set_name: str, select: Select
) -> dict[str, Score]:
    epochs.check(select, set_name)
    found = epochs.scores(connection, [row.run_id for row in rows], metric, select)
    if (
        select is not Select.LAST
        and set_name not in found
        and any(row.state == RunState.COMPLETED for row in rows)
    ):
        fix = (
            "Hold out validation images with data: {val: 0.1}"
            if select is Select.BEST_VAL
            else "Average the weights with train: {ema_decay: 0.999}"
        )
        scored = "val" if select is Select.BEST_VAL else f"{set_name} with averaged weights"
        raise BadInput(f"select {select}: no selected run has {metric} on {scored}. {fix}")
    return found.get(set_name, {})


def axes_of(cells: dict[str, records.CellRow]) -> dict[str, Axes]:
    """Return cell -> its axes.

    Cells that have all their labels in common, and differ in a setting, get an axis with their id.
    """
    groups: dict[str, list[str]] = {}
    for cell_id, cell in cells.items():
        labels = [getattr(cell, name) for name in (*LABELS, "axes")]
        groups.setdefault(json.dumps(labels, sort_keys=True), []).append(cell_id)
    return {
        cell_id: cells[cell_id].axes | ({"cell": cell_id[:8]} if len(alike) > 1 else {})
        for alike in groups.values()
        for cell_id in alike
    }


def _cells_before(connection: Any, parents: dict[str, str]) -> dict[str, list[str]]:
    """Return cell -> the cells of the stages before it; a query for each stage of a chain.

    Args:
        connection: to the ledger.
        parents: cell -> the parent of one of its runs.
    """
    found: dict[str, list[str]] = {cell_id: [] for cell_id in parents}
    while parents:
        above = lookups.parents_of(connection, set(parents.values()))
        known = {cell_id: above[parent] for cell_id, parent in parents.items() if parent in above}
        for cell_id, row in known.items():
            found[cell_id].append(row.cell_id)
        parents = {cell_id: row.parent for cell_id, row in known.items() if row.parent}
    return found


def _last_stages(rows: list[records.RunRow], begun: dict[str, str]) -> list[records.RunRow]:
    """Leave out the runs that only serve as another selected run's beginning.

    Args:
        rows: the runs.
        begun: run -> the run that it starts from.
    """
    parents = set(begun.values())
    left = [row for row in rows if row.run_id not in parents]
    stages = {row.stage for row in left}
    last = {row.stage for row in rows if row.run_id in begun}
    return [row for row in left if row.stage in last] if last and len(stages) > 1 else left


def _cancelled(rows: list[records.RunRow]) -> set[str]:
    """Return the runs that were cancelled, or that wait for one that was."""
    by_id = {row.run_id: row for row in rows}

    def is_cancelled(row: records.RunRow | None) -> bool:
        if row is None or row.state == RunState.CANCELLED:
            return row is not None
        return row.state == RunState.BLOCKED and is_cancelled(by_id.get(row.parent or ""))

    return {row.run_id for row in rows if is_cancelled(row)}


def _has_teacher(cell: records.CellRow) -> bool:
    # The description is searched before it is read: few have one, and there may be thousands.
    if "teacher" not in cell.spec:
        return False
    settings = cell.settings
    return settings is not None and settings.head.learns_from_a_stage


def _baselines(cells: dict[str, records.CellRow], head: str) -> dict[str, bool]:
    """Return cell -> whether gains are over it.

    Raises:
        BadInput: no cell has the baseline's head, unless it is the supervised one.
    """
    if head == EACH:
        return dict.fromkeys(cells, False)
    if head == BASELINE:
        return {cell_id: bool(cell.is_baseline) for cell_id, cell in cells.items()}
    heads = {cell.head for cell in cells.values()}
    if head not in heads:
        raise BadInput(
            f"baseline {head}: no selected cell has this head. {suggest(head, sorted(heads))}"
        )
    return {cell_id: cell.head == head for cell_id, cell in cells.items()}


def _with_gains(cells: list[Cell]) -> list[Cell]:
    """Return the cells, each with its gain over the baseline that differs in the head alone."""
    baselines = {cell.match_id: cell for cell in cells if cell.is_baseline}
    return [
        cell
        if (baseline := baselines.get(cell.match_id)) in (None, cell)
        else changed(cell, baseline=baseline.cell_id, gain=_gain(cell, baseline))
        for cell in cells
    ]


def _gain(cell: Cell, baseline: Cell) -> float | None:
    if cell.select is Select.BEST_VAL and cell.candidates != baseline.candidates:
        return None
    if cell.mean is None or baseline.mean is None:
        return None
    return cell.mean - baseline.mean

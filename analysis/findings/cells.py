"""From ledger rows to one row per cell.

N of planned, mean, sample standard deviation, gain over the baseline.
"""

import json
import math
import statistics
from collections import Counter
from typing import Any

from ...db import lookups, queries
from ...db.engine import reading
from ...db.ledger import Ledger
from ...db.results import smaller_is_better
from ...jobs.errors import BadInput, suggest
from ...jobs.grid import catalogue
from ...jobs.run.selector import Selection
from ...jobs.run.spec import BASELINE, EACH, STAGE
from ...jobs.run.states import RunState
from . import epochs
from .best_marks import marks
from .declared import Plan
from .epochs import Select

SCHEMA_VERSION = 1


def report(
    ledger: Ledger,
    selection: Selection,
    *,
    metric: str = "top1",
    set_name: str = "test",
    select: Select = Select.LAST,
    with_specs: bool = False,
    baseline: str = BASELINE,
) -> list[dict[str, Any]]:
    """Return the selected cells in the order of their grid; no number in it is ever NaN.

    Args:
        ledger: where the results are.
        selection: of runs.
        metric: of the scores.
        set_name: that they were made on.
        select: the epoch that counts.
        baseline: the head that gains are over, by its label; `each`: there are no gains.
        with_specs: whether each cell brings `specs`: its description, and those of the stages
            before it; `run_ids`, seed -> the completed run; and `best_values`, seed -> its best
            epoch's value.

    Raises:
        NothingMatched: no run is selected.
        BadInput: no selected cell has the baseline's head, unless it is the supervised one; or the
            epoch is chosen by a set that is reported, or on which nothing was scored.
    """
    with reading(ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
        cells = queries.cell_rows(connection, {row.cell_id for row in rows})
        taught = {cell_id for cell_id, cell in cells.items() if _has_teacher(cell)}
        # A run that another one only learns from is not its beginning.
        begun = {row.run_id: row.parent for row in rows if row.parent and row.cell_id not in taught}
        if not any(condition.field in ("stage", "run") for condition in selection.conditions):
            rows = _last_stages(rows, begun)
        results = _results(connection, rows, metric, set_name, select)
        inexact = lookups.inexact_resumes(connection, [row.run_id for row in rows])
        before = _cells_before(
            connection, {row.cell_id: begun[row.run_id] for row in rows if row.run_id in begun}
        )
        cells |= queries.cell_rows(
            connection, {cell for chain in before.values() for cell in chain} - cells.keys()
        )
    grouped: dict[str, list[queries.RunRow]] = {row.cell_id: [] for row in rows}
    for row in rows:
        if row.streams is None:
            grouped[row.cell_id].append(row)
    apart = Counter(row.cell_id for row in rows if row.streams is not None)
    documents = [
        _cell(cells[cell_id], members, results, inexact, metric, set_name) | {"select": str(select)}
        for cell_id, members in grouped.items()
    ]
    for document in documents:
        # Runs of a study of streams are no replicates of each other: no mean over them is that of a
        # seed.
        document["apart"] = apart[document["cell_id"]]
        chain = [document["cell_id"], *before.get(document["cell_id"], ())]
        for cell_id in chain[1:]:
            document["fidelity"] = _fidelity(cells[cell_id]) | document["fidelity"]
        if with_specs:
            document |= _with_specs(
                document, grouped[document["cell_id"]], results, [cells[one] for one in chain]
            )
    _add_gains(documents, cells, baseline)
    _tell_apart(documents)
    return documents


def planned(
    ledger: Ledger, selection: Selection, plan: Plan, *, with_specs: bool = False
) -> list[dict[str, Any]]:
    """Return `report` as a plan has it, each cell with its `marks`."""
    cells = report(
        ledger,
        selection,
        metric=plan.metric,
        set_name=plan.set,
        select=plan.select,
        baseline=plan.baseline,
        with_specs=with_specs,
    )
    for cell, found in zip(cells, marks(cells, plan), strict=True):
        cell["marks"] = found
    return cells


def _results(
    connection: Any, rows: list[queries.RunRow], metric: str, set_name: str, select: Select
) -> dict[str, dict[str, Any]]:
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


def _with_specs(
    document: dict[str, Any],
    members: list[queries.RunRow],
    results: dict[str, dict[str, Any]],
    chain: list[dict[str, Any]],
) -> dict[str, Any]:
    run_ids = {str(row.seed): row.run_id for row in members if row.state == RunState.COMPLETED}
    best = {
        seed: float(results[run]["best"])
        for seed, run in run_ids.items()
        if seed in document["values"]
    }
    specs = [{name: _part(cell, name) for name in ("head", "recipe")} for cell in chain]
    # The best are chosen on the very set: for papers that did so, and for nothing else.
    return {"run_ids": run_ids, "best_values": best, "specs": specs}


def _tell_apart(documents: list[dict[str, Any]]) -> None:
    """Give cells that have all their labels in common, and differ in a setting, an axis with their
    id.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        labels = [
            document[name] for name in ("backbone", "dataset", "head", "recipe", "stage", "axes")
        ]
        groups.setdefault(json.dumps(labels, sort_keys=True), []).append(document)
    for alike in groups.values():
        if len(alike) > 1:
            for document in alike:
                document["axes"] = {**document["axes"], "cell": document["cell_id"][:8]}


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


def _last_stages(rows: list[queries.RunRow], begun: dict[str, str]) -> list[queries.RunRow]:
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


def _cell(
    cell: dict[str, Any],
    members: list[queries.RunRow],
    results: dict[str, dict[str, Any]],
    inexact: dict[str, bool],
    metric: str,
    set_name: str,
) -> dict[str, Any]:
    done = {
        row.seed: results[row.run_id]
        for row in members
        if row.state == RunState.COMPLETED and row.run_id in results
    }
    values = {
        seed: float(result["value"])
        for seed, result in done.items()
        if math.isfinite(result["value"])
    }
    numbers = list(values.values())
    best_minus_last = [abs(result["best"] - result["last"]) for result in done.values()]
    return {
        "schema_version": SCHEMA_VERSION,
        "cell_id": cell["cell_id"],
        "match_id": cell["match_id"],
        "backbone": cell["backbone"],
        "dataset": cell["dataset"],
        "head": cell["head"],
        "recipe": cell["recipe"],
        "stage": cell["stage"],
        "axes": cell["axes"],
        "fidelity": _fidelity(cell),
        "metric": metric,
        "better": "min" if smaller_is_better(metric) else "max",
        "set": set_name,
        "n": len(numbers),
        "planned": len(members),
        "states": dict(Counter(row.state for row in members if row.state != RunState.COMPLETED)),
        "diverged_seeds": sorted(row.seed for row in members if row.state == RunState.DIVERGED),
        "chance": _chance(cell, metric),
        "missing_seeds": sorted(row.seed for row in members if row.seed not in values),
        "values": {str(seed): values[seed] for seed in sorted(values)},
        "mean": statistics.fmean(numbers) if numbers else None,
        "std": statistics.stdev(numbers) if len(numbers) > 1 else None,
        "best_minus_last": statistics.fmean(best_minus_last) if best_minus_last else None,
        "candidates": sorted({int(result["candidates"]) for result in done.values()}),
        "epochs": sorted({int(result["last_epoch"]) for result in done.values()}),
        "resumed": sum(row.run_id in inexact for row in members),
        "resumed_inexactly": sum(inexact.get(row.run_id, False) for row in members),
        "baseline": None,
        "gain": None,
        "is_baseline": bool(cell["is_baseline"]),
    }


def _part(cell: dict[str, Any], name: str) -> dict[str, Any]:
    part = json.loads(cell["spec"])[name]
    found: dict[str, Any] = json.loads(part) if isinstance(part, str) else part
    return found


def _chance(cell: dict[str, Any], metric: str) -> float | None:
    """Return what guessing scores, in percent; None of a metric that has no such level."""
    hits = {"top1": 1, "top5": 5}.get(metric.removeprefix("ema_"))
    classes = _part(cell, "dataset").get("classes")
    return min(100.0, 100.0 * hits / classes) if hits and classes else None


def _has_teacher(cell: dict[str, Any]) -> bool:
    # The description is searched before it is read: few have one, and there may be thousands.
    head = _part(cell, "head") if "teacher" in cell["spec"] else {}
    return head.get("name") == "distill" and bool(head["params"].get("teacher") == STAGE)


def _fidelity(cell: dict[str, Any]) -> dict[str, str]:
    """Return name -> preset of the recipe and, where it was published, the head."""
    head, recipe = _part(cell, "head"), _part(cell, "recipe")
    published = (
        cell["recipe"] in catalogue.recipe_names()
        and catalogue.recipe_file(cell["recipe"]).source != "vtjobs"
    )
    found = {cell["recipe"]: recipe.get("fidelity")} if published else {}
    if head.get("params"):
        found[head["name"]] = head["params"].get("fidelity")
    return {name: fidelity for name, fidelity in found.items() if fidelity}


def _add_gains(
    documents: list[dict[str, Any]], cells: dict[str, dict[str, Any]], head: str
) -> None:
    """Add to each cell its gain over the baseline that differs from it in the head alone."""
    if head == EACH:
        for document in documents:
            document |= {"baseline_head": head, "is_baseline": False}
        return
    if head != BASELINE:
        heads = {document["head"] for document in documents}
        if head not in heads:
            raise BadInput(
                f"baseline {head}: no selected cell has this head. {suggest(head, sorted(heads))}"
            )
        for document in documents:
            document["is_baseline"] = document["head"] == head
    for document in documents:
        document["baseline_head"] = head
    baselines = {
        cells[document["cell_id"]]["match_id"]: document
        for document in documents
        if document["is_baseline"]
    }
    for document in documents:
        baseline = baselines.get(cells[document["cell_id"]]["match_id"])
        if baseline is None or baseline is document:
            continue
        document["baseline"] = baseline["cell_id"]
        alike = (
            document["select"] != Select.BEST_VAL
            or document["candidates"] == baseline["candidates"]
        )
        if document["mean"] is not None and baseline["mean"] is not None and alike:
            document["gain"] = document["mean"] - baseline["mean"]

"""One cell of a report: from its rows of the ledger to its statistics."""

import math
import statistics
from collections import Counter
from collections.abc import Callable

from ...db import records
from ...db.results import smaller_is_better
from ...jobs.grid import catalogue
from ...jobs.grid.scoring import can_be_scored, chance_level
from ...jobs.run.comparing import Select
from ...jobs.run.settings import CellSettings
from ...jobs.run.spec import Axes
from ...jobs.run.states import RunState
from ...jobs.values import Value, changed
from ..stats.moments import moments
from . import without_value
from .cell import LABELS, Cell
from .epochs import Score

SCHEMA_VERSION = 1


class About(Value, frozen=True, kw_only=True):
    """What all cells of a report are made from."""

    metric: str
    is_own_metric: bool
    set_name: str
    select: Select
    results: dict[str, Score]
    inexact: dict[str, bool]
    """Resumed run -> whether it was not resumed bit for bit."""
    apart: Counter[str]
    """Cell -> its runs that are part of a study."""
    axes: dict[str, Axes]
    is_baseline: dict[str, bool]
    baseline_head: str
    with_specs: bool
    cancelled: set[str]
    """Runs that were cancelled, or whose beginning was."""
    retried: set[str]
    """Runs that somebody had tried again."""
    redrawn: set[str]
    """Runs that somebody had run again after they had ended with a result."""
    evaluations: dict[str, int]
    """Run -> epochs at which it was scored, with `with_specs`."""
    tried: dict[str, int]
    """Cell -> cells with its backbone, dataset, head and stage that have begun."""


def make_cell(chain: list[records.CellRow], members: list[records.RunRow], about: About) -> Cell:
    """Return a cell.

    Args:
        chain: its row of the ledger, then those of the stages before it.
        members: its runs that are replicates.
        about: the report.
    """
    cell = chain[0]
    # Of two runs of a seed that of vtjobs counts: it comes last.
    members = sorted(members, key=lambda row: not row.is_imported)
    completed = [row for row in members if row.state == RunState.COMPLETED]
    done = {row.seed: about.results[row.run_id] for row in completed if row.run_id in about.results}
    values = {
        seed: float(done[seed].value) for seed in sorted(done) if math.isfinite(done[seed].value)
    }
    numbers = tuple(values.values())
    # Epoch 0: files of imported runs that do not say which one they scored.
    best_minus_last = [
        abs(result.best - result.last) for result in done.values() if result.last_epoch
    ]
    known = [(row, made) for row in chain if (made := row.settings) is not None]
    fidelity: dict[str, str] = {}
    for row, stage in reversed(known):
        fidelity |= _fidelity(row.recipe, stage)
    own = known[0][1] if known else None
    unscored = without_value.unscored(
        members,
        about.results,
        can_be_scored=own is not None
        and can_be_scored(own, about.metric, about.set_name, is_own=about.is_own_metric),
    )

    def seeds(is_so: Callable[[records.RunRow], bool]) -> list[int]:
        return sorted(row.seed for row in members if is_so(row))

    found = Cell(
        schema_version=SCHEMA_VERSION,
        cell_id=cell.cell_id,
        match_id=cell.match_id,
        **{name: getattr(cell, name) for name in LABELS},
        axes=about.axes[cell.cell_id],
        fidelity=fidelity,
        metric=about.metric,
        better="min" if smaller_is_better(about.metric) else "max",
        set=about.set_name,
        n=len(numbers),
        planned=len(members),
        states=dict(Counter(row.state for row in members if row.state != RunState.COMPLETED)),
        diverged_seeds=seeds(lambda row: row.state == RunState.DIVERGED),
        chance=chance_level(own.dataset.classes, about.metric) if own else None,
        missing_seeds=seeds(lambda row: row.seed not in values),
        lost_seeds=without_value.lost(members, {*values, *unscored}, about.cancelled),
        unscored_seeds=unscored,
        cancelled_seeds=seeds(lambda row: row.run_id in about.cancelled),
        retried_seeds=seeds(lambda row: row.run_id in about.retried),
        redrawn_seeds=seeds(lambda row: row.run_id in about.redrawn),
        values=values,
        mean=moments(numbers)[0] if numbers else None,
        std=moments(numbers)[1] if len(numbers) > 1 else None,
        best_minus_last=statistics.fmean(best_minus_last) if best_minus_last else None,
        candidates=sorted({result.candidates for result in done.values()}),
        epochs=sorted({result.last_epoch for result in done.values()}),
        resumed=sum(row.run_id in about.inexact for row in members),
        resumed_inexactly=sum(about.inexact.get(row.run_id, False) for row in members),
        cut_seeds=seeds(lambda row: row.micro_split > 1),
        imported_seeds=seeds(lambda row: row.is_imported),
        baseline=None,
        gain=None,
        gain_interval=None,
        is_baseline=about.is_baseline[cell.cell_id],
        select=about.select,
        apart=about.apart[cell.cell_id],
        tried=about.tried.get(cell.cell_id, 0),
        baseline_head=about.baseline_head,
    )
    if not about.with_specs:
        return found
    return changed(
        found,
        run_ids={row.seed: row.run_id for row in completed},
        # The best are chosen on the very set: for papers that did so, and for nothing else.
        best_values={seed: float(done[seed].best) for seed in values},
        evaluations=sorted({about.evaluations.get(row.run_id, 0) for row in completed}),
        specs=[stage for _, stage in known],
    )


def _fidelity(recipe: str, settings: CellSettings) -> dict[str, str]:
    """Return name -> preset of the recipe and, where it was published, the head."""
    found: dict[str, str] = {}
    if catalogue.is_recipe(recipe) and catalogue.recipe_file(recipe).source != "vtjobs":
        found[recipe] = settings.recipe.fidelity
    if fidelity := settings.head.params.get("fidelity"):
        found[settings.head.name] = fidelity
    return found

"""Every result of the selected runs as long data: a line per run, set, metric and epoch rule.

For R, pandas and whatever else reads tables. Runs without a result have a line of their own, so
that no analysis takes those that went well for all.
"""

from collections.abc import Iterator, Sequence

from ...db import queries
from ...db.engine import Connection, reading
from ...db.ledger import Ledger
from ...db.records import ResultRow, RunRow
from ...jobs.run.comparing import Select
from ...jobs.run.selector import Selection, axis_text
from ...jobs.values import Value
from . import epochs

# The best epoch on the reported set itself: what papers print that choose by it.
BEST_ON_SET = "best_on_set"


class LongRow(Value, frozen=True, kw_only=True):
    """One value of one run; None where the run has none."""

    run_id: str
    cell_id: str
    grid_id: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    seed: int
    """Or the place in the design of a variance study."""
    state: str
    set: str | None
    metric: str | None
    rule: str | None
    """last, best_val, or best_on_set: the epoch that counts."""
    epoch: int | None
    value: float | None
    imported: bool
    """Whether the run was trained elsewhere."""
    axes: dict[str, str]
    """Axis of the grid -> value."""


def long_data(ledger: Ledger, selection: Selection) -> list[LongRow]:
    """Return the lines of all selected runs, in the order of their grid.

    Raises:
        NothingMatched: no run is selected.
    """
    with reading(ledger.engine) as connection:
        runs = queries.list_runs(connection, selection)
        run_ids = [run.run_id for run in runs]
        values: dict[str, list[ResultRow]] = {}
        for result in queries.results_of(connection, sorted(run_ids)):
            values.setdefault(result.run_id, []).append(result)
        chosen = _chosen_by_val(connection, run_ids, values)
    return [line for run in runs for line in _lines(run, values.get(run.run_id, ()), chosen)]


# Set, run and metric -> its score at the epoch that is best on `val`.
_Chosen = dict[tuple[str, str, str], epochs.Score]


def _chosen_by_val(
    connection: Connection, run_ids: Sequence[str], values: dict[str, list[ResultRow]]
) -> _Chosen:
    metrics = {result.metric for own in values.values() for result in own}
    sets = {result.set_name for own in values.values() for result in own}
    if epochs.VAL not in sets:
        return {}
    return {
        (set_name, run_id, metric): score
        for metric in sorted(metrics)
        for set_name, own in epochs.scores(connection, run_ids, metric, Select.BEST_VAL).items()
        for run_id, score in own.items()
    }


def _lines(run: RunRow, results: Sequence[ResultRow], chosen: _Chosen) -> Iterator[LongRow]:
    if not results:
        yield _line(run, None, None, None, None, None)
    for one in sorted(results, key=lambda result: (result.set_name, result.metric)):
        yield _line(run, one.set_name, one.metric, "last", int(one.last_epoch), one.last)
        by_val = chosen.get((one.set_name, run.run_id, one.metric))
        if by_val is not None:
            yield _line(run, one.set_name, one.metric, "best_val", by_val.epoch, by_val.value)
        best = int(one.best_epoch)
        yield _line(run, one.set_name, one.metric, BEST_ON_SET, best, one.best)


def _line(
    run: RunRow,
    set_name: str | None,
    metric: str | None,
    rule: str | None,
    epoch: int | None,
    value: float | None,
) -> LongRow:
    return LongRow(
        run_id=run.run_id,
        cell_id=run.cell_id,
        grid_id=run.grid_id,
        backbone=run.backbone,
        dataset=run.dataset,
        head=run.head,
        recipe=run.recipe,
        stage=run.stage,
        seed=run.seed,
        state=run.state,
        set=set_name,
        metric=metric,
        rule=rule,
        epoch=epoch,
        value=value,
        imported=run.is_imported,
        axes={name: axis_text(setting) for name, setting in run.axes.items()},
    )

"""Per run, test set and metric.

The value at the last epoch and the best one, along the run's lineage.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Connection, delete, exists, insert, literal, select

from ..jobs.documents import reader
from ..jobs.run.states import AttemptState, RunState
from ..jobs.workspace.events import Metrics
from . import models as m
from .parts import in_parts
from .rows import Row

_read_metrics = reader(Metrics)

# Metrics where less is better; of all others more is.
SMALLER_IS_BETTER = ("loss", "mse", "mae", "nll", "ece", "err", "error", "perplexity")
# Under this name the metrics of training stand beside those of the sets that are scored.
TRAINING = "training"


def smaller_is_better(metric: str) -> bool:
    """Whether a smaller value of this metric is the better one."""
    return metric.endswith(SMALLER_IS_BETTER)


def summarise(connection: Connection, run_ids: Iterable[str]) -> None:
    """Write the results of these runs anew."""
    for part in in_parts(sorted(run_ids), 2000):
        rows = _results(_scores(connection, part))
        cells = {row.run_id: row.cell_id for row in connection.execute(_cells(part))}
        for row in rows:
            row["cell_id"] = cells[row["run_id"]]
        connection.execute(delete(m.results).where(m.results.c.run_id.in_(part)))
        if rows:
            connection.execute(insert(m.results), rows)


def _cells(run_ids: list[str]) -> Any:
    return select(m.runs.c.run_id, m.runs.c.cell_id).where(m.runs.c.run_id.in_(run_ids))


def _lineages(connection: Connection, run_ids: list[str]) -> dict[str, dict[int, int | None]]:
    """Return run -> attempt that counts -> the last step of it that counts, or None where all do.

    The attempt that completed counts, else the highest that started; below it what it went on from,
    up to there.
    """
    table = m.attempts.c
    columns = (
        table.run_id,
        table.number,
        table.state,
        table.started_at,
        table.resumed_attempt,
        table.resumed_step,
    )
    attempts: dict[str, dict[int, Any]] = defaultdict(dict)
    query = (
        select(*columns)
        .where(table.run_id.in_(run_ids))
        .order_by(table.run_id, table.number.desc())
    )
    for row in connection.execute(query):
        attempts[row.run_id][row.number] = row
    found: dict[str, dict[int, int | None]] = {}
    for run_id, rows in attempts.items():
        done = [number for number, row in rows.items() if row.state == AttemptState.COMPLETED]
        started = [number for number, row in rows.items() if row.started_at is not None]
        found[run_id] = _lineage(rows, (done or started or [0])[0])
    return found


def _lineage(rows: dict[int, Any], top: int) -> dict[int, int | None]:
    counting: dict[int, int | None] = {}
    number: int | None = top
    cut: int | None = None
    while number in rows and number not in counting:
        counting[number] = cut
        row = rows[number]
        number = row.resumed_attempt
        if row.resumed_step is not None:
            cut = row.resumed_step if cut is None else min(cut, row.resumed_step)
    return counting


def _scores(
    connection: Connection, run_ids: list[str], *, of_training: bool = False
) -> dict[tuple[str, str, str], dict[int, tuple[int, float]]]:
    """Return (run, set, metric) -> epoch -> (attempt, value).

    A resumed attempt scores the epochs behind its cut anew, so of two scores of one epoch the
    higher attempt's counts; what lies outside of the run's lineage never does.
    """
    found: dict[tuple[str, str, str], dict[int, tuple[int, float]]] = defaultdict(dict)
    for row, values in rows_that_count(connection, run_ids, of_training=of_training):
        for metric, value in values.items():
            if isinstance(value, int | float) and metric != "n":
                found[row.run_id, row.set_name, metric][row.epoch] = (row.attempt, float(value))
    return found


def rows_that_count(
    connection: Connection, run_ids: Iterable[str], *, of_training: bool
) -> Iterator[tuple[Any, Metrics]]:
    """Yield what journals have by epoch, along each run's lineage, in the order it was written.

    Args:
        connection: to the ledger.
        run_ids: of the runs.
        of_training: metrics of training instead of scores.

    Yields:
        A row (run_id, attempt, step, epoch, set_name), and its metrics.
    """
    for part in in_parts(sorted(run_ids), 2000):
        yield from _rows_of_part(connection, part, of_training=of_training)


def _rows_of_part(
    connection: Connection, run_ids: list[str], *, of_training: bool
) -> Iterator[tuple[Any, Metrics]]:
    table = m.epoch_metrics.c if of_training else m.evaluations.c
    set_name = literal(TRAINING) if of_training else m.evaluations.c.set_name
    query = (
        select(table.run_id, table.attempt, table.step, table.epoch)
        .add_columns(set_name.label("set_name"), table.metrics)
        .where(table.run_id.in_(run_ids))
        .order_by(table.run_id, table.attempt, table.node, table.seq)
    )
    lineages = _lineages(connection, run_ids)
    for row in connection.execute(query):
        run_id, attempt, step, *_, metrics = row
        counting = lineages.get(run_id, {})
        if attempt not in counting:
            continue
        cut = counting[attempt]
        if cut is None or step <= cut:
            yield row, _read_metrics(metrics)


def by_epoch(
    connection: Connection, run_ids: Iterable[str], metric: str
) -> dict[str, dict[str, dict[int, float]]]:
    """Return set -> run -> epoch -> value, as far as the run was scored, along its lineage."""
    return _by_epoch(connection, run_ids, metric, of_training=False)


def training_by_epoch(
    connection: Connection, run_ids: Iterable[str], metric: str
) -> dict[str, dict[int, float]]:
    """Return run -> epoch -> value of a metric of training, along the run's lineage."""
    return _by_epoch(connection, run_ids, metric, of_training=True).get(TRAINING, {})


def values_by_epoch(connection: Connection, run_id: str) -> dict[tuple[int, str, str], float]:
    """Return (epoch, set, metric) -> value of one run, of training and of all sets."""
    return {
        (epoch, set_name, metric): value
        for of_training in (True, False)
        for (_, set_name, metric), scored in _scores(
            connection, [run_id], of_training=of_training
        ).items()
        for epoch, (_, value) in scored.items()
    }


def metrics_of(connection: Connection, run_ids: Iterable[str]) -> dict[str, set[str]]:
    """Return set -> metrics that any of these runs has a value of; training is a set of its own."""
    found: dict[str, set[str]] = defaultdict(set)
    for part in in_parts(run_ids, 2000):
        for of_training in (False, True):
            for _, set_name, metric in _scores(connection, part, of_training=of_training):
                found[set_name].add(metric)
    return found


def _by_epoch(
    connection: Connection, run_ids: Iterable[str], metric: str, *, of_training: bool
) -> dict[str, dict[str, dict[int, float]]]:
    found: dict[str, dict[str, dict[int, float]]] = {}
    for part in in_parts(sorted(run_ids), 2000):
        scores = _scores(connection, part, of_training=of_training)
        for (run_id, set_name, of), scored in scores.items():
            if of == metric:
                curve = {epoch: value for epoch, (_, value) in sorted(scored.items())}
                found.setdefault(set_name, {})[run_id] = curve
    return found


def _results(
    scores: dict[tuple[str, str, str], dict[int, tuple[int, float]]],
) -> list[Row]:
    rows = []
    for (run_id, set_name, metric), by_epoch in scores.items():
        last_epoch = max(by_epoch)
        choose = min if smaller_is_better(metric) else max
        best_value = choose(value for _, value in by_epoch.values())
        best_epoch = min(epoch for epoch, (_, value) in by_epoch.items() if value == best_value)
        rows.append(
            {
                "run_id": run_id,
                "set_name": set_name,
                "metric": metric,
                "last": by_epoch[last_epoch][1],
                "last_epoch": last_epoch,
                "best": best_value,
                "best_epoch": best_epoch,
            }
        )
    return rows


def evaluated_runs(connection: Connection, grid_id: str) -> dict[str, tuple[RunState, bool]]:
    """Return the runs that follow a grid: state, and whether any epoch of theirs was scored.

    A run follows the newest grid that has it.
    """
    is_scored = exists().where(m.evaluations.c.run_id == m.runs.c.run_id)
    query = select(m.runs.c.run_id, m.runs.c.state, is_scored).where(m.runs.c.grid_id == grid_id)
    return {row[0]: (RunState(row[1]), bool(row[2])) for row in connection.execute(query)}

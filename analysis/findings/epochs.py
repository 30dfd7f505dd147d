"""Which epoch of a run is its score.

One rule for all that is compared, declared before the runs.
"""

from collections.abc import Sequence

from ...db import queries
from ...db.engine import Connection
from ...db.results import by_epoch, smaller_is_better
from ...jobs.errors import BadInput
from ...jobs.run.comparing import Select
from ...jobs.values import Value, changed

# The part of the training images that is held out.
VAL = "val"


class Score(Value, frozen=True, kw_only=True):
    """What one run has on one set."""

    value: float
    """That of the epoch that counts."""
    epoch: int
    """The epoch that counts."""
    last: float
    last_epoch: int
    best: float
    """On this very set."""
    candidates: int
    """How many epochs there were to choose from; 1 where the last one counts."""


def metric_of(metric: str, select: Select) -> str:
    """Return the metric that a rule reads: that of the averaged weights has a name of its own."""
    return (
        f"ema_{metric}" if select is Select.EMA_LAST and not metric.startswith("ema_") else metric
    )


def check(select: Select, set_name: str) -> None:
    """Refuse to report what an epoch is chosen by.

    Raises:
        BadInput: the set is the one that `best_val` chooses by.
    """
    if select is Select.BEST_VAL and set_name == VAL:
        raise BadInput(
            "select best_val: the epoch is chosen on val, so val cannot be reported. "
            "Report another set, or select the last epoch"
        )


def epoch_text(select: str, epochs: Sequence[int]) -> str:
    """Return which epoch was taken, for a caption."""
    if select == Select.BEST_VAL:
        return "each run's best epoch on val"
    return f"epoch {epochs[0]}" if len(epochs) == 1 and epochs[0] else "the last epoch"


def scores(
    connection: Connection, run_ids: Sequence[str], metric: str, select: Select
) -> dict[str, dict[str, Score]]:
    """Return set -> run -> its score."""
    found: dict[str, dict[str, Score]] = {}
    for row in queries.results_of(connection, sorted(run_ids)):
        if row.metric == metric:
            found.setdefault(row.set_name, {})[row.run_id] = Score(
                value=row.last,
                epoch=int(row.last_epoch),
                last=row.last,
                last_epoch=int(row.last_epoch),
                best=row.best,
                candidates=1,
            )
    return _by_val(connection, found, metric) if select is Select.BEST_VAL else found


def _by_val(
    connection: Connection, found: dict[str, dict[str, Score]], metric: str
) -> dict[str, dict[str, Score]]:
    curves = by_epoch(connection, {run_id for own in found.values() for run_id in own}, metric)
    held_out = curves.pop(VAL, {})
    choose = min if smaller_is_better(metric) else max
    chosen: dict[str, dict[str, Score]] = {}
    for set_name, own in curves.items():
        for run_id, curve in own.items():
            # Of several that are as good, the first.
            both = sorted(curve.keys() & held_out.get(run_id, {}).keys())
            if both and run_id in found.get(set_name, {}):
                epoch = choose(both, key=held_out[run_id].__getitem__)
                score = changed(
                    found[set_name][run_id],
                    value=curve[epoch],
                    epoch=epoch,
                    candidates=len(both),
                )
                chosen.setdefault(set_name, {})[run_id] = score
    return chosen

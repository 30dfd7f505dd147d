"""Seeds of a cell without a value: those that get none, and those that can still be scored."""

from collections.abc import Collection, Sequence

from ...db import records
from ...jobs.grid.own_function import NEIGHBOURS
from ...jobs.run.settings import CellSettings
from ...jobs.run.states import RunState

# States in which a run without a value gets none, unless somebody acts.
_LOST = (RunState.COMPLETED, RunState.FAILED, RunState.BLOCKED)
# The set that every run with a classifier is scored on while it trains.
_IN_TRAINING = "test"


def can_be_scored(settings: CellSettings | None, metric: str, set_name: str) -> bool:
    """Return whether `vtjobs evaluate` can give completed runs such a score.

    A declared comparison waits for it. Else whoever evaluates the runs would choose which of them
    count.

    Args:
        settings: of the cell; None where its runs were trained elsewhere.
        metric: of the report.
        set_name: that it is of.
    """
    if settings is None:
        return False
    if NEIGHBOURS.fullmatch(metric):
        return True
    return set_name != _IN_TRAINING and settings.head.shared.labels


def unscored(
    members: Sequence[records.RunRow], results: Collection[str], *, can_be_scored: bool
) -> list[int]:
    """Return the seeds whose run completed and can still be scored.

    Args:
        members: the cell's runs.
        results: runs that were scored, be it by NaN.
        can_be_scored: whether an evaluation scores such runs.
    """
    if not can_be_scored:
        return []
    return sorted(
        row.seed
        for row in members
        if row.state == RunState.COMPLETED and not row.is_imported and row.run_id not in results
    )


def lost(
    members: Sequence[records.RunRow], there: Collection[int], cancelled: Collection[str]
) -> list[int]:
    """Return the seeds that get no value by themselves.

    Args:
        members: the cell's runs.
        there: seeds with a value, or that can still be scored.
        cancelled: runs that were cancelled, or start from one that was.
    """
    return sorted(
        row.seed
        for row in members
        if row.state in _LOST and row.seed not in there and row.run_id not in cancelled
    )

"""A run's attempts as its folder tells them, and what the retry policy says of it."""

from ..run.derive import AttemptView, RunView, derive
from ..run.retry import Verdict
from ..run.states import AttemptState, FailureClass
from .grid_settings import GridSettings
from .lineage import read_attempt
from .paths import RunFolder


def verdict_of(folder: RunFolder, settings: GridSettings) -> Verdict:
    """Judge a run of which no attempt is at work, from its folder alone.

    The ledger comes to the same verdict, but for attempts that left no end record: their end is the
    scheduler's to tell, and here they count as lost.
    """
    granted = [number for number, _ in folder.all_grants()]
    view = RunView(
        tries=settings.retries,
        tries_from=max(granted, default=0),
        cancelled_through=folder.highest_cancel(),
        may_halve=settings.halve_micro_batch,
    )
    return derive(view, [_view(folder, number) for number in folder.attempts()])


def _view(folder: RunFolder, number: int) -> AttemptView:
    record = read_attempt(folder, number)
    start, end = record.start, record.end
    return AttemptView(
        number=number,
        state=AttemptState.LOST if end is None else end.state,
        failure=FailureClass.AGENT_DIED if end is None else end.failure,
        signature="" if end is None else end.signature,
        resumed_step=None if start is None else start.resumed_step,
        checkpoint_step=max(record.announced, default=None),
        ended_at=None if end is None else end.at,
    )


def next_number(folder: RunFolder, *, above: int = 0) -> int:
    """Return a number that no attempt at the run has had, and that no cancel or grant covers."""
    granted = [number for number, _ in folder.all_grants()]
    numbers = (folder.highest_claim(), folder.highest_cancel(), above)
    return max(*numbers, *granted, *folder.attempts()) + 1

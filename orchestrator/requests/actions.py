"""What a user asks of runs: cancel, hold, release, retry, rerun.

Each leaves its mark in the workspace first.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...db import failed, imported, lookups, queries
from ...db.engine import reading
from ...jobs.at_once import at_once
from ...jobs.atomic_files import make_folder, to_json, touch_new, write_over
from ...jobs.documents import Document
from ...jobs.errors import DamagedFile, VtjobsError
from ...jobs.run.retry import WAITED_FOR
from ...jobs.run.states import RunState
from ...jobs.values import field
from ...jobs.workspace.markers import read_marker
from ...jobs.workspace.paths import RunFolder
from ..loop.context import Context
from ..loop.guard import reset
from ..loop.tick import cancel_places, take_in_written

T = TypeVar("T")


class Done(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The runs that an action touched, and those that it passed over."""

    schema_version: int = 1
    """Raised when a key is removed or changes its meaning."""
    run_ids: list[str] = field(name="runs")
    """Those that it touched."""
    passed_over: dict[str, str]
    """Run -> why it was passed over."""


def cancellable(context: Context, run_ids: Sequence[str]) -> Done:
    """Return what `cancel` would do: runs that have a result are passed over."""
    states = _states(context, run_ids)
    ended = (RunState.COMPLETED, RunState.DIVERGED)
    over = {run_id: f"is already {states[run_id]}" for run_id in run_ids if states[run_id] in ended}
    return Done(run_ids=[run_id for run_id in run_ids if run_id not in over], passed_over=over)


def cancel(context: Context, run_ids: Sequence[str]) -> Done:
    """Forbid every attempt so far to start or to go on; the agents notice within seconds."""
    done = cancellable(context, run_ids)
    submitted = _submitted(context, done.run_ids)

    def cancel_one(run_id: str) -> int:
        folder = context.workspace.run(run_id)
        number = max(_highest(folder), submitted.get(run_id, 0)) + 1
        folder.cancel(number)
        return number

    context.ledger.set_cancelled(_for_each(done.run_ids, cancel_one))
    _end_allocations(context, set(done.run_ids))
    return done


def _end_allocations(context: Context, chosen: set[str]) -> None:
    """End the places that have nothing left to do, and wake the agents of the others."""
    # Whoever looked last may have done so long ago: what has begun since is not what waits.
    take_in_written(context)
    with reading(context.ledger.engine) as connection:
        live = queries.live_attempts(connection)
    cancel_places(context, [row for row in live if row.run_id in chosen], live)


def _submitted(context: Context, run_ids: Sequence[str]) -> dict[str, int]:
    """Return run -> the highest attempt that was submitted."""
    with reading(context.ledger.engine) as connection:
        return lookups.newest_attempts_of(connection, run_ids)


def _highest(folder: RunFolder) -> int:
    """Return the highest attempt that was started or cancelled; 0: none was."""
    # Looked up right before it is acted on: agents hand runs on meanwhile.
    return max(folder.highest_claim(), folder.highest_cancel())


def _for_each(run_ids: Sequence[str], do: Callable[[str], T]) -> dict[str, T]:
    """Do what touches each run's folder; return run -> what came of it."""
    return dict(zip(run_ids, at_once(do, run_ids), strict=True))


def completed_among(context: Context, run_ids: Sequence[str]) -> list[str]:
    """Return the completed ones: a rerun replaces their results."""
    states = _states(context, run_ids)
    return [run_id for run_id in run_ids if states[run_id] == RunState.COMPLETED]


def retryable(context: Context, run_ids: Sequence[str], *, clean: bool) -> Done:
    """Return what `retry` would do."""
    states = _states(context, run_ids)
    live, elsewhere = _live(context, run_ids), _imported(context, run_ids)
    waiting = _waiting_for_another_try(context)
    ending = _being_cancelled(context, live)

    def why_not(run_id: str) -> str:
        state = states[run_id]
        if run_id in elsewhere:
            return "was imported, and vtjobs has nothing to train it from"
        if run_id in ending:
            return "is being cancelled. Try it again once it is cancelled"
        if run_id in live:
            return f"is {state}; cancel it first"
        if state == RunState.COMPLETED and not clean:
            return f"is completed. To train it again: vtjobs rerun {run_id[:8]}{context.where}"
        if state == RunState.PENDING and run_id not in waiting and not clean:
            return "is pending and needs no retry"
        if state == RunState.BLOCKED:
            return "is blocked by its parent stage. Retry the parent run instead"
        return ""

    over = {run_id: why for run_id in run_ids if (why := why_not(run_id))}
    return Done(run_ids=[run_id for run_id in run_ids if run_id not in over], passed_over=over)


def _being_cancelled(context: Context, live: set[str]) -> set[str]:
    """Return those of the runs that were cancelled, and are still queued or at work."""
    submitted = _submitted(context, sorted(live))
    with reading(context.ledger.engine) as connection:
        through = lookups.cancelled_through(connection, live)
    return {run_id for run_id in live if through[run_id] >= submitted.get(run_id, 1)}


def _waiting_for_another_try(context: Context) -> set[str]:
    """Return the pending runs that would try again after a while; a retry starts them at once."""
    with reading(context.ledger.engine) as connection:
        return {row.run_id for row in failed.failed_runs(connection, (), waiting=WAITED_FOR)}


def retry(context: Context, run_ids: Sequence[str], *, clean: bool) -> Done:
    """Give runs new tries: from the last checkpoint, or (clean) from nothing."""
    done = retryable(context, run_ids, clean=clean)
    submitted = _submitted(context, done.run_ids)
    kind = "-clean" if clean else ""

    def grant(run_id: str) -> int:
        folder = context.workspace.run(run_id)
        number = max(_highest(folder), submitted.get(run_id, 0))
        touch_new(make_folder(folder.grants) / f"{number:04d}{kind}")
        folder.offer()
        return number

    granted = _for_each(done.run_ids, grant)
    context.ledger.grant_try(granted, clean=clean)
    reset(context, _grids_of(context, list(granted)))
    return done


def hold(context: Context, run_ids: Sequence[str]) -> Done:
    """Keep runs from starting; what runs already goes on.

    Also those that have a result: they may be about to run again.
    """
    _mark(context, run_ids, held=True)
    return Done(run_ids=list(run_ids), passed_over={})


def release(context: Context, run_ids: Sequence[str]) -> Done:
    """Let runs start that were held, that wait for a canary, or that a circuit breaker stopped."""
    reset(context, _grids_of(context, run_ids))
    _mark(context, run_ids, held=False)
    return Done(run_ids=list(run_ids), passed_over={})


def _grids_of(context: Context, run_ids: Sequence[str]) -> set[str]:
    with reading(context.ledger.engine) as connection:
        return set(lookups.newest_grids_of(connection, run_ids))


def _mark(context: Context, run_ids: Sequence[str], *, held: bool) -> None:
    with reading(context.ledger.engine) as connection:
        by_grid = lookups.newest_grids_of(connection, run_ids)
        if not held:
            # A run may be held in the grids that it came with earlier.
            by_grid = {grid_id: set(run_ids) for grid_id in queries.grid_settings(connection)}
    for grid_id, chosen in by_grid.items():
        mark_held(context, grid_id, chosen, held=held)


def mark_held(context: Context, grid_id: str, chosen: set[str], *, held: bool) -> None:
    """Add runs to a grid's hold marker, or take them out of it.

    Agents read it before they claim.
    """
    path = context.workspace.marker(grid_id, "hold")
    try:
        before = set(read_marker(context.workspace, grid_id, "hold").get("runs", ()))
    except DamagedFile:
        # It holds all runs of the grid, until they are released.
        return
    after = before | chosen if held else before - chosen
    if after:
        write_over(path, to_json({"runs": sorted(after)}))
    else:
        path.unlink(missing_ok=True)


def _states(context: Context, run_ids: Sequence[str]) -> dict[str, RunState]:
    with reading(context.ledger.engine) as connection:
        found = lookups.states_of(connection, run_ids)
    missing = [run_id for run_id in run_ids if run_id not in found]
    if missing:
        raise VtjobsError(f"no run {missing[0]}")
    return found


def _imported(context: Context, run_ids: Sequence[str]) -> set[str]:
    with reading(context.ledger.engine) as connection:
        return imported.among(connection, run_ids)


def _live(context: Context, run_ids: Sequence[str]) -> set[str]:
    with reading(context.ledger.engine) as connection:
        return lookups.live_runs(connection) & set(run_ids)

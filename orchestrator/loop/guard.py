"""What keeps a grid from wasting a cluster.

The canary that goes first, and the breaker that stops a broken grid.

Both are markers in the grid's folder (jobs/workspace/markers.py), which dispatch and queued agents
obey alike.
"""

from collections import defaultdict
from collections.abc import Container
from pathlib import Path

from ...db import failed, lookups, queries, scheduler_notes
from ...db.bad_nodes import BLACK_HOLE_S, black_holes
from ...db.engine import reading
from ...db.failed import FailedRun
from ...jobs.atomic_files import read_cache, read_mapping, to_json, write_new, write_over
from ...jobs.run.error_text import message_of
from ...jobs.run.retry import ALIKE_RUNS, AT_ONCE, BLAMED
from ...jobs.run.states import RunState
from ...jobs.workspace.markers import damaged_markers, trip
from ...jobs.workspace.paths import Workspace
from ...jobs.workspace.stored_grid import FrozenGrid
from ..backends.base import Place, WaitKind
from .context import Context, part_name


def guard(context: Context, *, asked: Container[str] | None = None) -> list[str]:
    """Release canaries that have passed, trip breakers; return what the user should know.

    Args:
        context: workspace, ledger, backends.
        asked: None: a pass. Otherwise it is said only, no marker is written, and no scheduler is
            asked but these.
    """
    acts = asked is None
    found: list[str] = []
    for folder in sorted(context.workspace.grids.glob("*")):
        if damaged := damaged_markers(context.workspace, folder.name):
            found += [_unreadable(context, folder.name, path) for path in damaged]
        elif (folder / "canary.json").exists():
            found += _watch_canary(context, folder.name, acts=acts)
    found += _watch_failures(context, acts=acts) + _watch_nodes(context)
    return found + _watch_queue(context, asked)


def _watch_nodes(context: Context) -> list[str]:
    """Say which nodes are avoided because no agent can start there."""
    unfinished = (RunState.PENDING, RunState.QUEUED, RunState.RUNNING)
    with reading(context.ledger.engine) as connection:
        holes = black_holes(connection, now=context.clock())
        if not holes or not lookups.runs_by_grid(connection, unfinished):
            return []
    return [
        f"{hole.backend}: jobs avoid {hole.node} for {BLACK_HOLE_S / 3600:.0f} h, as"
        f" {hole.jobs} failed there ({message_of(hole.error, '')})"
        for hole in holes
    ]


def _unreadable(context: Context, grid_id: str, marker: Path) -> str:
    return (
        f"{grid_id}: {marker} is damaged, so its runs are held back. Remove it, and start them:"
        f" vtjobs release {grid_id}{context.where}"
    )


def _watch_queue(context: Context, asked: Container[str] | None) -> list[str]:
    """Say which queued runs will not start by themselves."""
    with reading(context.ledger.engine) as connection:
        words = queries.waiting_words(connection)
    away = scheduler_notes.away(context.ledger)
    found = []
    for row in words:
        backend = context.backend(row.backend)
        may_ask = asked is None or row.backend in asked or backend.explains_by_word
        (cluster,) = backend.by_cluster([Place(token=row.token)])
        if part_name(row.backend, cluster) in away or not may_ask:
            continue
        waiting = backend.explain(row.word, token=row.token)
        if waiting is None or waiting.kind is WaitKind.WAIT:
            continue
        never = "can never start" if waiting.kind is WaitKind.NEVER else "will not start by itself"
        found.append(
            f"{row.grid_id}: {row.runs} queued run(s) {never}: {waiting.sentence} "
            f"({waiting.reason}). See: vtjobs why {row.run_id[:8]}{context.where}"
        )
    return found


def choose_canary(frozen: FrozenGrid, chosen: set[str]) -> list[str]:
    """Return the run with the first seed of each distinct backbone, dataset and head."""
    found: dict[tuple[str, ...], str] = {}
    for run_id, cell, _, parent in frozen.runs:
        labels = frozen.cells[cell].labels
        if run_id in chosen and parent is None:
            found.setdefault((labels["backbone"], labels["dataset"], labels["head"]), run_id)
    return sorted(found.values())


def set_canary(workspace: Workspace, grid_id: str, run_ids: list[str]) -> None:
    """Let these runs of a grid go first; a grid whose canary has passed is not held back again."""
    if run_ids:
        write_new(workspace.marker(grid_id, "canary"), to_json({"runs": run_ids, "passed": False}))


def _watch_canary(context: Context, grid_id: str, *, acts: bool) -> list[str]:
    path = context.workspace.marker(grid_id, "canary")
    marker = read_mapping(path)
    if marker.get("passed"):
        return []
    runs = list(marker.get("runs", ()))
    with reading(context.ledger.engine) as connection:
        states = lookups.states_of(connection, runs)
        epochs = lookups.epochs_of(connection, runs)
    passed = [
        run_id for run_id in runs if states.get(run_id) == RunState.COMPLETED or epochs.get(run_id)
    ]
    if len(passed) == len(runs):
        if acts:
            write_over(path, to_json({"runs": runs, "passed": True}))
        return []
    sick = [
        run_id
        for run_id in runs
        if run_id not in passed and RunState(states.get(run_id, "pending")).is_settled
    ]
    if not sick:
        return []
    return [
        f"{grid_id}: {len(sick)} of {len(runs)} canary runs failed, so the rest is held back. "
        f"See: vtjobs failures {sick[0][:8]}{context.where}. To start the rest anyway:"
        f" vtjobs release {grid_id}{context.where}"
    ]


def _watch_failures(context: Context, *, acts: bool) -> list[str]:
    """Trip the breaker of a grid in which too many runs failed alike.

    Say which grids are tripped.
    """
    alike: dict[tuple[str, str, str], list[FailedRun]] = defaultdict(list)
    with reading(context.ledger.engine) as connection:
        for row in failed.failed_runs(connection, BLAMED, waiting=AT_ONCE):
            alike[row.grid_id, row.failure, row.signature].append(row)
        waiting = (RunState.PENDING, RunState.QUEUED)
        pending = lookups.runs_by_grid(connection, waiting) if alike else {}
    found = []
    for (grid_id, failure, signature), rows in sorted(alike.items()):
        forgiven = read_cache(context.workspace.marker(grid_id, "forgiven"))
        fresh = [row for row in rows if forgiven.get(row.run_id, 0) < row.number]
        if not _is_everywhere(context, fresh):
            fresh = [row for row in fresh if row.state == RunState.FAILED]
        if len(fresh) < ALIKE_RUNS or not pending.get(grid_id):
            continue
        with reading(context.ledger.engine) as connection:
            errors = lookups.newest_errors(connection, [fresh[0].run_id])
        message = message_of(errors[fresh[0].run_id], signature)
        if acts:
            trip(
                context.workspace,
                grid_id,
                failure=failure,
                signature=signature,
                message=message,
                runs=[row.run_id for row in fresh],
            )
        found.append(
            f"{grid_id}: stopped after {len(fresh)} runs failed with the same error "
            f"({failure}: {message}); {pending[grid_id]} runs are held back. "
            f"Fix the cause, then run: vtjobs retry {grid_id}{context.where}. To go on without"
            f" a change: vtjobs release {grid_id}{context.where}. To give them up:"
            f" vtjobs cancel {grid_id}{context.where}"
        )
    return found


def _is_everywhere(context: Context, rows: list[FailedRun]) -> bool:
    """Return whether runs failed because of more than one bad node.

    Runs that wait for another try may find their data on another node. But where two nodes, or the
    only machine, lack it, further runs would fail as well.
    """
    hosts = {row.host for row in rows if row.host}
    return len(hosts) > 1 or all(context.backend(row.backend).one_machine for row in rows)


def reset(context: Context, grid_ids: set[str]) -> None:
    """Open what canary and breaker closed, because the user says so.

    Earlier failures no longer count.
    """
    with reading(context.ledger.engine) as connection:
        known = set(queries.grid_settings(connection, grid_ids))
        attempts = lookups.newest_attempts(connection, known)
    for grid_id in known:
        marker = context.workspace.marker
        for path in damaged_markers(context.workspace, grid_id):
            path.unlink(missing_ok=True)
        if marker(grid_id, "breaker").exists():
            write_over(marker(grid_id, "forgiven"), to_json(attempts.get(grid_id, {})))
            marker(grid_id, "breaker").unlink(missing_ok=True)
        canary = read_mapping(marker(grid_id, "canary"))
        if canary and not canary.get("passed"):
            write_over(marker(grid_id, "canary"), to_json({**canary, "passed": True}))

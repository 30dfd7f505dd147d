"""What has happened, in sentences: grids that ended or stalled, runs that failed, breakers."""

from ...db import happened
from ...db.engine import reading
from ...db.ledger import Ledger
from ...jobs.atomic_files import read_cache
from ...jobs.config.notices import NoticeSettings
from ...jobs.names import one_line
from ...jobs.units import format_duration, plural
from ...jobs.workspace.paths import Workspace
from .outbox import Notice


def notices(
    ledger: Ledger,
    workspace: Workspace,
    settings: NoticeSettings,
    *,
    since: float,
    now: float,
    where: str = "",
) -> list[Notice]:
    """Return what has happened since a time that somebody wants to be told of.

    Args:
        ledger: with the states of runs.
        workspace: with the markers of grids.
        settings: what is told.
        since: seconds since 1970.
        now: the same.
        where: what a command that is printed ends with.
    """
    found: list[Notice] = []
    with reading(ledger.engine) as connection:
        if "finish" in settings.on:
            found += [ended(one, where) for one in happened.ended_grids(connection, since)]
        if "fail" in settings.on:
            found += [lost(one, where) for one in happened.lost_runs(connection, since)]
        if "stall" in settings.on:
            found += [
                _stalled(one, now, where)
                for one in happened.quiet_grids(connection, now - settings.stall_s)
                if not _is_held(workspace, one.grid_id)
            ]
    if "breaker" in settings.on:
        found += _breakers(workspace, since, where)
    return found


def ended(one: happened.EndedGrid, where: str) -> Notice:
    """Return the notice of a grid that has ended."""
    counts = ", ".join(f"{count} {state}" for state, count in sorted(one.states.items()))
    return Notice(
        key=f"finish-{one.grid_id}-{one.attempts}",
        kind="finish",
        grid_id=one.grid_id,
        at=one.at,
        text=f"{one.grid_id} has ended: {counts}. Results: vtjobs report {one.grid_id}{where}",
    )


def lost(one: happened.LostRun, where: str) -> Notice:
    """Return the notice of a run that failed or diverged."""
    labels = one_line(f"{one.backbone}, {one.dataset}, {one.head}, seed {one.seed}")
    why = f" ({one.failure})" if one.failure and one.state == "failed" else ""
    return Notice(
        key=f"fail-{one.run_id}-{one.number}",
        kind="fail",
        grid_id=one.grid_id,
        run_id=one.run_id,
        at=one.at,
        text=f"{one.grid_id}: {one.run_id[:8]} {one.state}{why}: {labels}. "
        f"See: vtjobs why {one.run_id[:8]}{where}",
    )


def _breakers(workspace: Workspace, since: float, where: str) -> list[Notice]:
    found = []
    for folder in sorted(workspace.grids.glob("*")):
        path = workspace.marker(folder.name, "breaker")
        try:
            at = path.stat().st_mtime
        except FileNotFoundError:
            continue
        if at <= since:
            continue
        marker = read_cache(path)
        alike = plural(len(marker.get("runs", ())), "run")
        why = one_line(f"{marker.get('class', 'failed')}: {marker.get('message', '')}")[:300]
        found.append(
            Notice(
                key=f"breaker-{folder.name}-{at:.0f}",
                kind="breaker",
                grid_id=folder.name,
                at=at,
                text=f"{folder.name} is stopped: {alike} failed with the same error ({why}). "
                f"See: vtjobs failures {folder.name}{where}",
            )
        )
    return found


def _stalled(one: happened.QuietGrid, now: float, where: str) -> Notice:
    return Notice(
        key=f"stall-{one.grid_id}-{one.at:.0f}",
        kind="stall",
        grid_id=one.grid_id,
        at=now,
        text=f"{one.grid_id} has stalled: for {format_duration(now - one.at)} nothing has happened "
        f"to {plural(one.runs, 'unfinished run')}. See: vtjobs why {one.grid_id}{where}",
    )


def _is_held(workspace: Workspace, grid_id: str) -> bool:
    """Whether somebody or the breaker holds runs of a grid back, which is no stall."""
    return any(workspace.marker(grid_id, name).exists() for name in ("hold", "breaker"))

"""Start pending runs.

Choose those that are due, put them into allocations, hand these to the backend.
"""

from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ...db import bad_nodes, lookups, queries, scheduler_notes
from ...db.due import DueRun, handing_on
from ...db.engine import reading
from ...db.ledger import Ledger
from ...db.rebuild import adopt_allocations
from ...jobs.atomic_files import to_json, write_new
from ...jobs.config.notices import notice_settings
from ...jobs.errors import BadInput, SchedulerSlow, SchedulerUnreachable
from ...jobs.run.states import RunState
from ...jobs.run.turns import Claim, share
from ...jobs.values import changed
from ...jobs.workspace.allocation import Allocation, Shape, Task
from ...jobs.workspace.grid_settings import GridSettings
from ..backends.base import Room, SubmitOutcome
from .context import Context
from .hidden_limits import HiddenLimits
from .open_runs import open_runs
from .plan import pack, shape_of, spread

# How long a submitter may take from writing an allocation down to hearing from the scheduler.
LAUNCH_S = 60.0
# How long an agent may take from its last run's end to the allocation file of its successor.
HAND_ON_S = 60.0
# Attempts of one grid that are live at a time: every pass looks at each of them. The rest follows
# with later passes.
MOST_LIVE = 10_000


@dataclass(slots=True)
class Started:
    """What a dispatch came to."""

    attempts: int = 0
    problems: list[str] = field(default_factory=list)
    """Why some grids cannot start here."""
    unreachable: dict[str, SchedulerUnreachable] = field(default_factory=dict)
    """Backends, or clusters of one, that could not be asked, with the reason."""


def dispatch(context: Context) -> Started:
    """Start what is due in every grid, and then what can be chained to that."""
    total = Started()
    while True:
        before = total.attempts
        due = _due(context)
        if due:
            _dispatch(context, due, total)
        # A stage that hangs on what was just submitted may follow it in the same pass.
        if total.attempts == before or total.problems or total.unreachable:
            return total


def _dispatch(context: Context, due: dict[str, list[DueRun]], total: Started) -> None:
    with reading(context.ledger.engine) as connection:
        settings = queries.grid_settings(connection, set(due))
    grids: dict[str, dict[str, list[DueRun]]] = defaultdict(dict)
    backends: dict[str, str] = {}
    for grid_id, rows in due.items():
        name = settings[grid_id].backend
        part = context.part(name, settings[grid_id].site)
        backends[part] = name
        # What was chained to another backend's job cannot be.
        grids[part][grid_id] = [row for row in rows if row.after is None or row.backend == name]
    away = scheduler_notes.away(context.ledger)
    # One that may not answer keeps the others waiting for its deadline.
    for part in sorted(grids, key=lambda one: one in away):
        mine, name = grids[part], backends[part]
        if part in total.unreachable or not _has_turn(context, name, part, mine.keys(), total):
            continue
        try:
            _dispatch_part(context, part, mine, settings, total)
        except SchedulerUnreachable as error:
            scheduler_notes.note_away(context.ledger, part, error)
            total.unreachable[part] = error


def _has_turn(context: Context, name: str, part: str, grid_ids: Set[str], total: Started) -> bool:
    """Return whether a part of a backend may be handed work in this pass."""
    ledger, every_s = context.ledger, context.backend(name).poll_s
    note = scheduler_notes.away(ledger).get(part)
    # Each try at a scheduler that could not be reached may take its whole deadline.
    if note and not scheduler_notes.may_ask(ledger, part, "tried", every_s=every_s):
        total.unreachable[part] = SchedulerUnreachable(note.reason)
        return False
    # What it takes of those that it was full for is asked for as seldom as everything else.
    return not grid_ids <= scheduler_notes.kept_out(ledger, part) or scheduler_notes.take_turn(
        ledger, f"room.{part}", every_s=every_s
    )


def _due(context: Context) -> dict[str, list[DueRun]]:
    """Return the pending runs that may start now, by grid."""
    found: dict[str, list[DueRun]] = defaultdict(list)
    now = context.clock()
    with reading(context.ledger.engine) as connection:
        handed_on = handing_on(
            connection,
            since=now - HAND_ON_S,
            hands_on=lambda backend: context.backend(backend).hands_on,
        )
        rows = open_runs(connection, context.workspace, now)
    for row in rows:
        if row.backend is not None and not context.backend(row.backend).chains:
            continue
        if row.run_id not in handed_on:
            found[row.grid_id].append(row)
    return found


@dataclass(slots=True, kw_only=True)
class _Grid:
    """A grid whose runs are started in this pass."""

    settings: GridSettings
    rows: list[DueRun]
    shape: Shape
    room: Room
    live: int
    """Its runs that are queued or running."""

    @property
    def wanted(self) -> int:
        return -(-len(self.rows) // self.room.tasks)


def _dispatch_part(
    context: Context,
    part: str,
    due: dict[str, list[DueRun]],
    settings: dict[str, GridSettings],
    total: Started,
) -> None:
    """Start what is due in the grids of one backend, or of a cluster of it, and share the places
    that it has among them.

    Raises:
        SchedulerUnreachable: it could not be asked; what was not submitted waits.
    """
    with reading(context.ledger.engine) as connection:
        live = lookups.runs_by_grid(connection, (RunState.QUEUED, RunState.RUNNING))
    grids: list[_Grid] = []
    for grid_id, rows in due.items():
        try:
            grids += _grid(context, settings[grid_id], rows, live.get(grid_id, 0))
        except BadInput as error:
            # The machine has changed since the grid was submitted; the other grids go on.
            total.problems.append(f"{grid_id}: {error}")
    if not grids:
        return
    name = grids[0].shape.backend
    scheduler_notes.note_answer(context.ledger, part, every_s=context.backend(name).poll_s)
    hidden = HiddenLimits(context, name)
    shares = share(
        [
            Claim(
                grid_id=grid.settings.grid_id,
                wanted=grid.wanted,
                live=-(-grid.live // grid.room.tasks),
                free={**grid.room.free, **hidden.free(grid.settings)},
            )
            for grid in grids
        ]
    )
    scheduler_notes.note_kept_out(
        context.ledger,
        part,
        [one.settings.grid_id for one in grids if shares[one.settings.grid_id] < one.wanted],
    )
    # Where a limit turns up that nobody knew of, those that have least have had their turn.
    for grid in sorted(grids, key=lambda one: (one.live, len(one.rows))):
        grid.rows = grid.rows[: shares[grid.settings.grid_id] * grid.room.tasks]
        if grid.rows and not hidden.is_met(grid.settings):
            _start_grid(context, grid, hidden, total)


def _grid(context: Context, settings: GridSettings, rows: list[DueRun], live: int) -> list[_Grid]:
    """Return a grid with the runs that its own settings let start, or nothing."""
    rows = rows[: max(0, min(MOST_LIVE, settings.max_running or MOST_LIVE) - live)]
    if not rows:
        return []
    backend = context.backend(settings.backend)
    shape = shape_of(settings, backend)
    rows, room = spread(rows, backend.room(shape, settings))
    return [_Grid(settings=settings, rows=rows, shape=shape, room=room, live=live)]


def _start_grid(context: Context, grid: _Grid, hidden: HiddenLimits, total: Started) -> None:
    for (after, exclude), group in _alike(context, grid.rows, grid.shape.backend).items():
        plan = partial(
            pack,
            shape=grid.shape,
            at=context.clock(),
            data_root=str(context.config.data_root),
            hang_s=context.config.get("hang_s"),
            decoded_gib=context.config.get("decoded_gib"),
            paths=grid.settings.paths,
            after=after,
            exclude=exclude,
        )
        tasks = [next_task(context, row) for row in group]
        if not _start_group(context, tasks, grid.room, plan, total):
            # The rest follows with a later pass.
            hidden.met(grid.settings)
            return
    hidden.passed(grid.settings)


def _start_group(
    context: Context,
    tasks: list[Task],
    room: Room,
    plan: Callable[..., list[Allocation]],
    total: Started,
) -> bool:
    """Start what may share allocations; False where the site takes no more.

    Not every limit can be asked for. An array that is too large for one would be refused for ever,
    so a smaller one is tried at once.
    """
    while tasks:
        part = tasks[: room.places * room.tasks]
        (allocation,) = plan(part, room=room)
        backend = context.backend(allocation.shape.backend)
        argv, tell_from = backend.argv(allocation), _tell_from(context)
        if _start(context, changed(allocation, argv=argv, tell_from=tell_from), total):
            tasks = tasks[len(part) :]
        elif len(allocation.tasks) == 1:
            return False
        else:
            room = changed(room, places=len(allocation.tasks) // 2)
    return True


def _tell_from(context: Context) -> str:
    """Return the folder whose settings say who is told what; nothing where nobody is."""
    config = context.config
    if not notice_settings(config.get("notify")).addresses:
        return ""
    return str((config.folder or Path.cwd()).resolve())


def _alike(
    context: Context, rows: list[DueRun], backend: str
) -> dict[tuple[tuple[str, ...], tuple[str, ...]], list[Any]]:
    """Put together what may share an allocation.

    It waits for the same job, and avoids the same nodes.
    """
    with reading(context.ledger.engine) as connection:
        bad = bad_nodes.bad_nodes(connection, [row.run_id for row in rows if row.last])
        holes = bad_nodes.black_holes(connection, now=context.clock())
    for_all = tuple(hole.node for hole in holes if hole.backend == backend)
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Any]] = defaultdict(list)
    for row in rows:
        avoid = tuple(dict.fromkeys((*bad.get(row.run_id, ()), *for_all)))
        found[(row.after,) if row.after else (), avoid].append(row)
    return found


def _start(context: Context, allocation: Allocation, total: Started) -> bool:
    """Write an allocation down and hand it on; False where the site takes no more."""
    # A pass over thousands of runs takes a while: what agents handed on meanwhile is not started
    # beside it.
    adopt_allocations(context.ledger, context.workspace, known_tokens(context.ledger))
    opened = context.ledger.open_attempts(allocation, launching_s=LAUNCH_S)
    if opened is None:
        return True
    outcome = launch(context, opened, claimed=True)
    total.attempts += len(opened.all_tasks) if outcome is not SubmitOutcome.LATER else 0
    return outcome is not SubmitOutcome.LATER


def next_task(context: Context, row: DueRun) -> Task:
    """Return a run's next attempt.

    Numbered above every claim, every cancel and every attempt in the ledger.
    """
    folder, highest = context.workspace.run(row.run_id), row.last
    # One look where nothing has ever been: there may be thousands of new runs.
    if folder.path.exists():
        highest = max(folder.highest_claim(), folder.highest_cancel(), highest)
    return Task(
        run_id=row.run_id,
        grid_id=row.grid_id,
        attempt=highest + 1,
        clean=row.clean_next,
        micro_split=row.micro_split,
        parent=row.parent,
    )


def launch(context: Context, allocation: Allocation, *, claimed: bool) -> SubmitOutcome | None:
    """Write the allocation's file and hand it to its backend.

    Return the outcome, None where somebody else does it.

    Args:
        context: workspace, ledger, backends.
        allocation: what is in the ledger as `submitting`.
        claimed: whether the caller is already the one who submits it.

    Raises:
        SchedulerUnreachable: whether it was submitted is not known; a later pass finds out.
    """
    ledger, token = context.ledger, allocation.token
    if not claimed and not ledger.take_launch(token, for_s=LAUNCH_S):
        return None
    write_new(context.workspace.allocation(token), to_json(allocation.to_dict()))
    backend = context.backend(allocation.shape.backend)
    submission = backend.submit(allocation)
    if submission.outcome is not SubmitOutcome.UNCLEAR:
        # The agent that could not submit it need not be helped any more.
        context.workspace.unsent(token).unlink(missing_ok=True)
    match submission.outcome:
        case SubmitOutcome.ACCEPTED:
            ledger.accepted(token, submission.job_id, source=backend.name)
            part = context.part(backend.name, allocation.site)
            scheduler_notes.note_answer(ledger, part, every_s=backend.poll_s)
            backend.wake()
        case SubmitOutcome.REFUSED | SubmitOutcome.LATER:
            later = submission.outcome is SubmitOutcome.LATER
            if later:
                # First: a run without an attempt may be taken on by an agent, which looks for it
                # in these files.
                context.workspace.allocation(token).unlink(missing_ok=True)
            if not ledger.refused(token, submission.reason, source=backend.name, later=later):
                return SubmitOutcome.ACCEPTED
        case SubmitOutcome.UNCLEAR:
            kind = SchedulerSlow if submission.is_slow else SchedulerUnreachable
            raise kind(submission.reason)
    return submission.outcome


def stored_allocation(ledger: Ledger, token: str) -> Allocation:
    """Return an allocation as the ledger has it."""
    with reading(ledger.engine) as connection:
        return lookups.allocation(connection, token)


def known_tokens(ledger: Ledger) -> set[str]:
    """Return the tokens of all allocations in the ledger."""
    with reading(ledger.engine) as connection:
        return lookups.tokens(connection)

"""The ledger's writing verbs.

Each one transaction, each transition a compare-and-set that leaves an event.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from ..jobs.config.host import user_here
from ..jobs.documents import to_plain
from ..jobs.errors import BadInput
from ..jobs.run.spec import canonical
from ..jobs.run.states import AttemptState, FailureClass, RunState
from ..jobs.values import changed
from ..jobs.workspace.allocation import Allocation
from ..jobs.workspace.stored_grid import FrozenGrid
from . import cell_names, imported, requests
from . import models as m
from .engine import check_schema, open_engine, parse_url, reading, writing
from .moves import move_all, move_attempt
from .parts import in_parts
from .rows import Asked, Row, attempt_row, cell_row, event_row, insert_new, run_row
from .run_state import derive_runs

Clock = Callable[[], float]


# How long runs wait after a scheduler said "not now".
LATER_S = 60.0
# The state of a journal that must be read once more, although its attempt has ended: others build
# upon it.
DUE = "due"
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Ledger:
    """The database that indexes a workspace.

    Raises (everywhere):
        LedgerUnreachable: the database is away or busy.
    """

    def __init__(self, engine: Engine, clock: Clock = time.time) -> None:
        self.engine = engine
        self.clock = clock

    @classmethod
    def open(
        cls,
        url: str,
        *,
        workspace_id: str,
        create: bool = False,
        read_only: bool = False,
        where: str = "",
        clock: Clock = time.time,
    ) -> "Ledger":
        """Open the ledger of a workspace.

        Args:
            url: a SQLAlchemy URL or a path.
            workspace_id: the workspace that the ledger must belong to.
            create: whether an empty database gets its tables.
            read_only: whether a SQLite file is opened so that nothing can be written.
            where: what a command ends with that an error names, see `Config.where`.
            clock: gives the time, in seconds since 1970.

        Raises:
            BadInput: the ledger belongs to another workspace, or is on a network file system.
            OlderLedger, NewerLedger: the schema does not fit.
        """
        engine = open_engine(parse_url(url), read_only=read_only)
        engine.update_execution_options(vtjobs_where=where)
        if not check_schema(engine) and create:
            from .upgrade import upgrade

            upgrade(engine)
        ledger = cls(engine, clock)
        ledger._check_owner(workspace_id, create)
        return ledger

    def _check_owner(self, workspace_id: str, create: bool) -> None:
        with reading(self.engine) as connection:
            owner = connection.execute(
                select(m.meta.c.value).where(m.meta.c.key == "workspace_id")
            ).scalar()
        if owner is None and create:
            with writing(self.engine) as connection:
                connection.execute(
                    insert_new(connection, m.meta), {"key": "workspace_id", "value": workspace_id}
                )
        elif owner is not None and owner != workspace_id:
            raise BadInput(
                "this ledger belongs to another workspace; set VTJOBS_LEDGER or VTJOBS_WORKSPACE"
            )

    # Grids ----------------------------------------------------------------------------------------

    def add_grid(self, frozen: FrozenGrid, *, created: Mapping[str, float] = NOTHING) -> set[str]:
        """Store a grid and its runs; what is there stays.

        Args:
            frozen: the grid.
            created: when runs were first submitted, where that was before this submission.

        Returns:
            The ids of the runs that are new.
        """
        settings = frozen.settings
        now = self.clock()
        with writing(self.engine) as connection:
            row = {
                "grid_id": frozen.grid_id,
                "name": settings.name,
                "submitted_at": settings.submitted_at,
                "settings": canonical(to_plain(settings)),
            }
            connection.execute(insert_new(connection, m.grids), row)
            changes = {key: row[key] for key in ("submitted_at", "settings")}
            connection.execute(
                update(m.grids).where(m.grids.c.grid_id == frozen.grid_id).values(**changes)
            )
            known = self._known(connection, [run[0] for run in frozen.runs])
            connection.execute(
                insert_new(connection, m.cells), [cell_row(cell) for cell in frozen.cells]
            )
            cell_names.keep(connection, frozen)
            new = [run for run in frozen.runs if run[0] not in known]
            since = settings.submitted_at
            rows = [run_row(frozen, run, created.get(run[0], since), now) for run in new]
            if rows:
                connection.execute(insert_new(connection, m.runs), rows)
            pairs = [
                {"grid_id": frozen.grid_id, "run_id": run[0], "position": position}
                for position, run in enumerate(frozen.runs)
            ]
            connection.execute(insert_new(connection, m.grid_runs), pairs)
            for part in in_parts(known):
                kept = {"grid_id": frozen.grid_id, "tries": settings.retries}
                connection.execute(update(m.runs).where(m.runs.c.run_id.in_(part)).values(**kept))
            # A new run may hang on a parent that has failed long ago.
            derive_runs(connection, known | {run[0] for run in new if run[3] in known}, now)
            imported.add_results(connection, frozen, {run[0] for run in new}, now)
        return {run[0] for run in new}

    def _known(self, connection: Connection, run_ids: list[str]) -> set[str]:
        found: set[str] = set()
        for part in in_parts(run_ids):
            found |= set(
                connection.execute(
                    select(m.runs.c.run_id).where(m.runs.c.run_id.in_(part))
                ).scalars()
            )
        return found

    def known(self, run_ids: list[str]) -> set[str]:
        """Return those of the runs that the ledger has."""
        with reading(self.engine) as connection:
            return self._known(connection, run_ids)

    # Allocations and attempts ---------------------------------------------------------------------

    def open_attempts(self, allocation: Allocation, *, launching_s: float) -> Allocation | None:
        """Write down an allocation and its attempts as `submitting`, before the scheduler is
        called.

        Runs that somebody else took meanwhile are left out; None where none is left.
        """
        now = self.clock()
        with writing(self.engine) as connection:
            wanted = [task.run_id for task in allocation.all_tasks]
            free = self._free(connection, wanted)
            # A number that is taken was chosen before somebody else's attempt came and went.
            kept = tuple(
                tuple(task for task in group if task.attempt > free.get(task.run_id, task.attempt))
                for group in allocation.tasks
            )
            content = changed(allocation, tasks=tuple(group for group in kept if group))
            if not content.all_tasks:
                return None
            self._insert_allocation(connection, content, launching_until=now + launching_s)
            places = [(index, task) for index, group in enumerate(content.tasks) for task in group]
            rows = [attempt_row(content, index, task) for index, task in places]
            at = content.created_at
            events = [event_row(row, None, "submitting", "vtjobs", at, "") for row in rows]
            connection.execute(insert(m.attempts), rows)
            connection.execute(insert(m.events), events)
            changes = [{"b_run": row["run_id"]} for row in rows]
            connection.execute(
                update(m.runs)
                .where(m.runs.c.run_id == bindparam("b_run"))
                .values(state=RunState.QUEUED, reason="", changed_at=now),
                changes,
            )
        return content

    def _free(self, connection: Connection, run_ids: list[str]) -> dict[str, int]:
        """Return those of the runs that are pending, with their highest attempt so far, or 0."""
        found: dict[str, int] = {}
        last = func.coalesce(func.max(m.attempts.c.number), 0)
        for part in in_parts(run_ids):
            query = (
                select(m.runs.c.run_id, last)
                .outerjoin(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
                .where(m.runs.c.run_id.in_(part), m.runs.c.state == RunState.PENDING)
                .group_by(m.runs.c.run_id)
            )
            found |= {row[0]: row[1] for row in connection.execute(query)}
        return found

    def _insert_allocation(
        self, connection: Connection, content: Allocation, *, launching_until: float
    ) -> None:
        connection.execute(
            insert_new(connection, m.allocations),
            {
                "token": content.token,
                "backend": content.shape.backend,
                "created_at": content.created_at,
                "launching_until": launching_until,
                "places": len(content.tasks),
                "content": canonical(content.to_dict()),
            },
        )

    def take_launch(self, token: str, *, for_s: float) -> bool:
        """Become the one who submits this allocation, for so long; False where somebody else is."""
        now = self.clock()
        with writing(self.engine) as connection:
            done = connection.execute(
                update(m.allocations)
                .where(m.allocations.c.token == token)
                .where(m.allocations.c.job_id.is_(None), m.allocations.c.refused.is_(None))
                .where(m.allocations.c.launching_until < now)
                .values(launching_until=now + for_s)
            )
            return done.rowcount == 1

    def accepted(self, token: str, job_id: str, *, source: str) -> None:
        """Write down that the scheduler has the allocation."""
        with writing(self.engine) as connection:
            connection.execute(
                update(m.allocations)
                .where(m.allocations.c.token == token)
                .values(job_id=job_id, launching_until=0.0)
            )
            move_all(
                connection,
                token,
                (AttemptState.SUBMITTING, AttemptState.QUEUED),
                source=source,
                raw=job_id,
                now=self.clock(),
            )

    def refused(self, token: str, reason: str, *, source: str, later: bool = False) -> bool:
        """Write down that the scheduler clearly said no.

        False where another submitter got it accepted meanwhile.

        The attempts fail and are not tried again. Where it meant "not now" they never were: their
        numbers are free, so that whoever starts the runs next may use them.
        """
        with writing(self.engine) as connection:
            mine = (m.allocations.c.token == token) & m.allocations.c.job_id.is_(None)
            done = connection.execute(
                update(m.allocations).where(mine).values(refused=reason, launching_until=0.0)
            )
            if done.rowcount == 0:
                return False
            table = m.attempts.c
            rows = connection.execute(
                select(table.run_id, table.number).where(table.token == token)
            ).all()
            if later:
                self._put_off(connection, token, [row.run_id for row in rows], reason)
                return True
            for run_id, number in rows:
                move_attempt(
                    connection,
                    (run_id, number),
                    AttemptState.FAILED,
                    source=source,
                    now=self.clock(),
                    raw=reason,
                    failure=FailureClass.REFUSED,
                    signature=reason,
                )
            derive_runs(connection, {row.run_id for row in rows}, self.clock())
        return True

    def _put_off(self, connection: Connection, token: str, run_ids: list[str], reason: str) -> None:
        connection.execute(delete(m.attempts).where(m.attempts.c.token == token))
        connection.execute(delete(m.allocations).where(m.allocations.c.token == token))
        derive_runs(connection, set(run_ids), self.clock())
        wait = {"not_before": self.clock() + LATER_S, "reason": reason}
        for part in in_parts(run_ids):
            connection.execute(update(m.runs).where(m.runs.c.run_id.in_(part)).values(**wait))

    # Transitions ----------------------------------------------------------------------------------

    def transition(
        self,
        run_id: str,
        number: int,
        to: AttemptState,
        *,
        source: str,
        raw: str = "",
        **fields: Any,
    ) -> bool:
        """Move an attempt, where the state machine allows it; return whether it moved."""
        move = {
            "run_id": run_id,
            "number": number,
            "to": to,
            "source": source,
            "raw": raw,
            **fields,
        }
        return self.transitions([move]) == 1

    def transitions(self, moves: Sequence[Row]) -> int:
        """Move attempts in one transaction, each where the state machine allows it.

        Return how many moved.
        """
        moved: set[str] = set()
        if not moves:
            return 0
        with writing(self.engine) as connection:
            for move in moves:
                fields = {"now": self.clock(), **move}
                attempt = fields.pop("run_id"), fields.pop("number")
                if move_attempt(connection, attempt, fields.pop("to"), **fields):
                    moved.add(attempt[0])
            derive_runs(connection, moved, self.clock())
        return len(moved)

    # What users ask for ---------------------------------------------------------------------------

    def set_cancelled(
        self, run_ids: Mapping[str, int], *, asked: Mapping[str, Asked] = NOTHING
    ) -> None:
        """Write down cancels.

        Args:
            run_ids: run -> the attempt that the cancel covers.
            asked: run -> by whom and when; default: by this user, now.
        """
        ours = Asked(at=self.clock(), by=user_here())
        with writing(self.engine) as connection:
            requests.cancel(connection, run_ids, defaultdict(lambda: ours, asked))
            derive_runs(connection, set(run_ids), ours.at)

    def grant_try(
        self, run_ids: Mapping[str, int], *, clean: bool, asked: Mapping[str, Asked] = NOTHING
    ) -> None:
        """Let runs be tried again.

        Args:
            run_ids: run -> the highest attempt number so far, which no longer counts.
            clean: whether from nothing.
            asked: run -> by whom and when; default: by this user, now.
        """
        ours = Asked(at=self.clock(), by=user_here())
        with writing(self.engine) as connection:
            requests.grant(connection, run_ids, defaultdict(lambda: ours, asked), clean=clean)
            derive_runs(connection, set(run_ids), ours.at)

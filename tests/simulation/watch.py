"""What is seen while a history happens, by somebody who knows what really went on.

And what must hold all the time.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.run.states import RunState
from vtjobs.jobs.workspace.allocation import Allocation
from vtjobs.orchestrator.loop.context import Context
from vtjobs.orchestrator.requests import actions

from .cluster import Cluster, Element
from .profile import Profile
from .world import World

if TYPE_CHECKING:
    from .agent import Hosted

# A job of ours must be in the ledger so long after it came, outages not counted.
KNOWN_WITHIN_S = 900.0
# A zombie gives up so long after a higher attempt began, if it is not standing still.
FENCED_WITHIN_S = 45.0
# A cancel reaches an agent within a look at the folder; what it writes until then counts.
NOTICE_S = 30.0
# Passes have seen a node that starts nothing so long after its second job.
HOLE_SEEN_WITHIN_S = 900.0


class Violation(AssertionError):
    """Something that must never happen."""

    def __init__(self, text: str, history: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.history = history


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A scancel behind our back, of one attempt."""

    at: float
    element: Element
    run_id: str
    attempt: int
    hosted: Hosted | None


class Watch:
    """The observer of a history."""

    def __init__(self, world: World, cluster: Cluster, profile: Profile) -> None:
        self.world = world
        self.cluster = cluster
        self.profile = profile
        self.runs: list[str] = []
        self.parents: dict[str, str] = {}
        self.states: dict[str, str] = {}
        self.touched: dict[str, float] = {}
        # When a user last asked something of a run, whether or not it came to its end.
        self.user_cancels: dict[str, tuple[float, int]] = {}
        # When a cancel came to its end, and what it covers.
        self.strangers: list[Stranger] = []
        self.scancelled_runs: set[str] = set()
        self.losses = 0
        self._seen_at: dict[str, float] = {}
        self._changed_at = 0.0
        self._trainers: dict[str, list[Hosted]] = defaultdict(list)
        self._kept_off: set[str] = set()
        # Black holes that the ledger was seen to know.
        self._connection: sqlite3.Connection | None = None

    # Agents ---------------------------------------------------------------------------------------

    def training(self, hosted: Hosted) -> None:
        """An attempt begins to train: nobody else may whom SLURM still has."""
        run_id = hosted.task.run_id
        others = [
            other for other in self._trainers[run_id] if other.is_training and other.agent.is_alive
        ]
        for other in others:
            element = other.agent.element
            if self.losses:
                # An allocation whose state was forgotten is submitted again for one of its runs,
                # with all of them.
                break
            if element.is_live and not element.cut_off and not hosted.agent.element.cut_off:
                text = (
                    f"two agents train run {run_id}: attempts {other.task.attempt} and"
                    f" {hosted.task.attempt}"
                )
                raise Violation(text)
        self._trainers[run_id] = [*others, hosted]
        lower = [other for other in others if other.task.attempt < hosted.task.attempt]
        self.world.after(FENCED_WITHIN_S, self._check_fenced, lower)

    def _check_fenced(self, others: list[Hosted]) -> None:
        """Whoever trained a run when a higher attempt began has given up by now."""
        for other in others:
            if (
                other.is_training
                and other.agent.is_alive
                and not other.agent.was_frozen(FENCED_WITHIN_S)
            ):
                raise Violation(
                    f"run {other.task.run_id}: attempt {other.task.attempt} goes on beside a"
                    " higher one"
                )

    # The ledger -----------------------------------------------------------------------------------

    def connection(self) -> sqlite3.Connection:
        if self._connection is None:
            # Only to read: a file that is not there must not be made.
            place = f"file:{self.cluster.workspace.root / 'ledger.sqlite'}?mode=ro"
            self._connection = sqlite3.connect(place, isolation_level=None, uri=True)
        return self._connection

    @property
    def has_ledger(self) -> bool:
        return (self.cluster.workspace.root / "ledger.sqlite").exists()

    def ledger_lost(self) -> None:
        self.losses += 1
        self._changed_at = 0.0
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for run_id, state in list(self.states.items()):
            # What only the scheduler had said is gone with the ledger.
            if state == RunState.FAILED or (
                state == RunState.CANCELLED and run_id not in self.user_cancels
            ):
                del self.states[run_id]

    def look(self) -> None:
        """Compare the runs' states with what they were."""
        if not self.has_ledger:
            return
        query = "SELECT run_id, state, changed_at FROM runs WHERE changed_at >= ?"
        for run_id, state, changed_at in (
            self.connection().execute(query, (self._changed_at,)).fetchall()
        ):
            self._changed_at = max(self._changed_at, changed_at)
            before = self.states.get(run_id)
            if before != state:
                self._check_change(run_id, before, state)
                self.states[run_id], self._seen_at[run_id] = state, self.world.now
                self.world.note(f"run {run_id} {state}")
        self._check_jobs()
        if self.is_quiet and self.cluster.holes:
            self._check_holes()

    def _check_change(self, run_id: str, before: str | None, after: str) -> None:
        if before is None or not RunState(before).is_terminal:
            return
        if self.touched.get(run_id, 0.0) >= self._seen_at[run_id] or (
            self.losses and run_id in self.touched
        ):
            return
        if before == RunState.CANCELLED and self._is_cancelling(run_id):
            # A node had handed it on meanwhile: that job is found, is shown as `cancelling`, and is
            # cancelled too.
            return
        raise Violation(f"I1: run {run_id} was {before} and is {after}, and nobody asked for it")

    def _is_cancelling(self, run_id: str) -> bool:
        """Whether the only attempt that is live is one that the user's cancel covers."""
        query = (
            "SELECT count(*) FROM attempts JOIN runs USING (run_id) WHERE run_id = ? AND number >"
            " cancelled_through"
        )
        return bool(self.connection().execute(query, (run_id,)).fetchone()[0] == 0)

    def _check_jobs(self) -> None:
        old = [
            job
            for job in self.cluster.jobs.values()
            if self.world.now - job.submitted_at > KNOWN_WITHIN_S
        ]
        live = {job.token for job in old if any(element.is_live for element in job.elements)}
        if not live:
            return
        known = {row[0] for row in self.connection().execute("SELECT token FROM allocations")}
        if live - known:
            raise Violation(f"I5: jobs that the ledger does not know: {sorted(live - known)}")

    # Black holes ----------------------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Whether passes come to their ends, and are told the truth."""
        profile = self.profile
        noise = profile.outage or profile.lost_reply or profile.kill or profile.pause
        return profile.accounting and not (noise or self.losses)

    def _check_holes(self) -> None:
        """Nodes that let no agent begin are kept out of, soon after their second job."""
        query = (
            "SELECT count(DISTINCT token || array_index) FROM attempts WHERE failure ="
            " 'not_submitted' AND host = ? AND ended_at < ?"
        )
        row = self.connection().execute("SELECT value FROM meta WHERE key = 'off.slurm'").fetchone()
        kept_off = set(json.loads(row[0])) if row else set()
        for node in self.cluster.holes:
            if node in kept_off:
                self._kept_off.add(node)
                continue
            early = self.world.now - HOLE_SEEN_WITHIN_S
            (jobs,) = self.connection().execute(query, (node, early)).fetchone()
            if jobs >= 2:
                raise Violation(f"{jobs} jobs ended on {node} before they began, and others may")

    def taken_by_hole(self, element: Element) -> None:
        """A job begins where none can, which those that passes submit avoid by then."""
        job, node = element.job, element.node
        if node in self._kept_off and job.by_pass and self.is_quiet:
            raise Violation(f"job {job.id} begins on {node}, which takes jobs and starts none")

    @property
    def is_settled(self) -> bool:
        return len(self.states) == len(self.runs) and all(
            RunState(state).is_settled for state in self.states.values()
        )

    def unsettled(self) -> dict[str, str]:
        found = {
            run_id: state for run_id, state in self.states.items() if not RunState(state).is_settled
        }
        jobs = {
            job.token: [e.state for e in job.elements if e.is_live]
            for job in self.cluster.jobs.values()
        }
        return {**found, **{token: str(states) for token, states in jobs.items() if states}}

    def live_jobs(self) -> bool:
        return any(
            element.is_live for job in self.cluster.jobs.values() for element in job.elements
        )

    # People ---------------------------------------------------------------------------------------

    def cancelled(self, context: Context, chosen: list[str]) -> None:
        for run_id in chosen:
            self.touched[run_id] = self.world.now
        try:
            done = actions.cancel(context, chosen)
        finally:
            for run_id in chosen:
                self.touched[run_id] = self.world.now
        for run_id in done.run_ids:
            number = context.workspace.run(run_id).highest_cancel()
            self.user_cancels[run_id] = (self.world.now, number)

    def retried(self, context: Context, chosen: list[str], *, clean: bool) -> None:
        for run_id in chosen:
            self.touched[run_id] = self.world.now
            self.user_cancels.pop(run_id, None)
        try:
            actions.retry(context, chosen, clean=clean)
        finally:
            for run_id in chosen:
                self.touched[run_id] = self.world.now

    def scancelled(self) -> None:
        """Somebody cancels one of our elements in SLURM."""
        if not self.cluster.is_up:
            return
        live = [
            e
            for job in self.cluster.jobs.values()
            for e in job.elements
            if e.state == "RUNNING" or (e.state == "PENDING" and not e.restarts)
        ]
        if not live:
            return
        element = self.world.random.choice(live)
        self.world.note(f"somebody cancels {element.job.id}_{element.index}")
        self._note_scancelled(element)
        if element.cut_off or element.cause:
            self.cluster.cancel(element)
            return
        agent = element.agent
        if agent is not None and agent.is_alive and agent.stopping is None:
            for hosted in agent.hosted:
                if hosted.state is None and hosted.stopping is None:
                    self._expect(element, hosted.task.run_id, hosted.task.attempt, hosted)
        elif element.state == "PENDING" and self.has_ledger:
            query = "SELECT run_id, number FROM attempts WHERE token = ? AND array_index = ?"
            for run_id, number in (
                self.connection().execute(query, (element.job.token, element.index)).fetchall()
            ):
                self._expect(element, run_id, number, None)
        self.cluster.cancel(element)

    def _note_scancelled(self, element: Element) -> None:
        """Note every run that may be cancelled with a job."""
        content = read_json(self.cluster.workspace.allocation(element.job.token))
        if content is not None:
            tasks = Allocation.from_dict(content).tasks[element.index]
            self.scancelled_runs.update(task.run_id for task in tasks)
        if element.agent is not None:
            self.scancelled_runs.update(hosted.task.run_id for hosted in element.agent.hosted)

    def _expect(self, element: Element, run_id: str, attempt: int, hosted: Hosted | None) -> None:
        self.strangers.append(
            Stranger(
                at=self.world.now, element=element, run_id=run_id, attempt=attempt, hosted=hosted
            )
        )

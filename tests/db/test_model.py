"""The ledger against a simple model of itself.

Whatever users, agents, zombies and readers do, in any order.
"""

import atexit
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vtjobs.db import models as m
from vtjobs.db.engine import open_engine, parse_url
from vtjobs.db.ingest import ingest, ingest_live
from vtjobs.db.ledger import Ledger
from vtjobs.db.rebuild import rebuild
from vtjobs.db.upgrade import upgrade
from vtjobs.jobs.run.states import LIVE, AttemptState, FailureClass
from vtjobs.jobs.workspace.lineage import candidates, completed_by

from ..support.ledgers import World, paper_grid
from ..support.postgres import roomy_memory

ENDS = [
    ("completed", None), ("failed", "crash"), ("failed", "setup_error"), ("failed", "diverged"),
    ("cancelled", "cancelled"), ("preempted", "stopped"), ("timeout", "walltime"), ("superseded", "skipped"),
]  # fmt: skip
OFTEN = [("preempted", "stopped"), ("failed", "crash"), ("preempted", "stopped"), None, None]
FREE = ("preempted", "timeout", "node_fail", "lost", "superseded")
FINAL = ("completed", "diverged", "failed", "cancelled")


@dataclass
class Try:
    """One attempt: what its agent did, and what of it the ledger was told."""

    number: int
    clean: bool
    token: str
    state: str = "submitting"
    failure: str | None = None
    begun: bool = False
    """Its agent has been there, and started or stepped back."""
    training: bool = False
    over: bool = False
    """Its end record is written."""
    from_attempt: int | None = None
    from_step: int | None = None
    step: int = 0
    saved: int = 0
    journal: list[tuple[str, Any]] = field(default_factory=list)
    read: int = 0
    told_saved: int = 0

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


@dataclass
class Run:
    """One run in the model."""

    tries: int
    attempts: list[Try] = field(default_factory=list)
    tries_from: int = 0
    cancelled: int = 0
    clean_next: bool = False
    spoke_late: bool = False
    """An attempt wrote on after it was given up: a ledger that reads it later knows more."""
    asked: bool = True
    before: str = ""

    @property
    def last(self) -> int:
        return self.attempts[-1].number if self.attempts else 0

    @property
    def state(self) -> str:
        for attempt in self.attempts:
            if attempt.is_live:
                return "running" if attempt.state == "running" else "queued"
        counted = [attempt for attempt in self.attempts if attempt.number > self.tries_from]
        if any(attempt.state == "completed" for attempt in counted):
            return "completed"
        if self.cancelled > max(self.last, self.tries_from):
            return "cancelled"
        return self._judged(counted) if counted else "pending"

    def _judged(self, counted: list[Try]) -> str:
        last = counted[-1]
        if last.state == "cancelled":
            return "cancelled"
        if last.failure == "diverged":
            return "diverged"
        if last.failure in ("refused", "setup_error"):
            return "failed"
        if last.state not in FREE:
            return (
                "failed"
                if sum(attempt.state not in FREE for attempt in counted) >= self.tries
                else "pending"
            )
        stalled = 0
        for attempt in reversed(counted):
            if attempt.state not in FREE or attempt.told_saved > (attempt.from_step or 0):
                break
            stalled += attempt.failure not in ("skipped", "not_submitted", "superseded")
        idle = last.failure in ("skipped", "not_submitted", "superseded")
        return "failed" if stalled >= 3 and not idle else "pending"

    def results(self) -> dict[int, float]:
        """Return epoch -> score along the lineage of the attempt that completed."""
        found: dict[int, float] = {}
        by_number = {attempt.number: attempt for attempt in self.attempts}
        done = [attempt for attempt in self.attempts if attempt.state == "completed"]
        place, cut = (done[-1] if done else None), 1 << 30
        while place is not None:
            scores = [what for kind, what in place.journal if kind == "epoch"]
            found = {epoch: score for epoch, score in scores if (epoch + 1) * 10 <= cut} | found
            cut = min(cut, place.from_step) if place.from_step is not None else cut
            place = by_number.get(place.from_attempt or 0)
        return found


which = st.integers(0, 3)


class LedgerMachine(RuleBasedStateMachine):
    """Two grids that share runs; attempts of which several may live on as zombies."""

    template: Path | None = None

    @initialize()
    def open(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="vtjobs-model-", dir=roomy_memory()))
        self.count = 0
        self.world = World(self.root / "runs", self._fresh())
        self.runs: dict[str, Run] = {}
        self.score = 0.0
        self.submit(False)

    def _fresh(self) -> str:
        """Return an empty ledger; migrating once is enough."""
        if LedgerMachine.template is None:
            folder = tempfile.mkdtemp(prefix="vtjobs-model-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            LedgerMachine.template = Path(folder) / "empty.sqlite"
            engine = open_engine(parse_url(str(LedgerMachine.template)))
            upgrade(engine)
            engine.dispose()
        self.count += 1
        path = self.root / f"ledger-{self.count}.sqlite"
        shutil.copy(LedgerMachine.template, path)
        return str(path)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                # Each history ends with it, so that the rarer ones are looked at too.
                self.a_rebuilt_ledger_says_the_same()
            finally:
                self.world.close()
                shutil.rmtree(self.root)

    def pick(self, number: int) -> tuple[str, Run]:
        run_id = sorted(self.runs)[number % len(self.runs)]
        return run_id, self.runs[run_id]

    def pick_attempt(self, number: int, *, training: bool) -> tuple[str, Run, Try] | None:
        found = [
            (run_id, run, attempt)
            for run_id, run in sorted(self.runs.items())
            for attempt in run.attempts
            if not attempt.over and attempt.training is training and (attempt.is_live or training)
        ]
        return found[number % len(found)] if found else None

    # Users ----------------------------------------------------------------------------------------

    @rule(wide=st.booleans())
    def submit(self, wide: bool) -> None:
        at = self.world.clock()
        shape: dict[str, Any] = {"cells": 2, "retries": 3} if wide else {"cells": 1, "retries": 2}
        grid = paper_grid("wide" if wide else "narrow", at=at, **shape)
        for run_id in self.world.submit(grid):
            run = self.runs.setdefault(run_id, Run(tries=0))
            run.tries, run.asked = grid.settings.retries, True

    @precondition(lambda self: self.runs)
    @rule(number=which, really=st.sampled_from([False, False, True]))
    def cancel(self, number: int, really: bool) -> None:
        run_id, run = self.pick(number)
        if really and run.state not in ("completed", "diverged"):
            run.cancelled, run.asked = self.world.highest(run_id) + 1, True
            self.world.cancel(run_id)

    @precondition(lambda self: self.runs)
    @rule(number=which, clean=st.booleans())
    def retry_or_rerun(self, number: int, clean: bool) -> None:
        run_id, run = self.pick(number)
        if run.state in ("queued", "running") or (run.state == "completed" and not clean):
            return
        highest = self.world.highest(run_id)
        run.clean_next = clean or (run.clean_next and run.tries_from == highest)
        run.tries_from, run.asked = highest, True
        self.world.grant(run_id, clean=clean)

    # Orchestrator and scheduler -------------------------------------------------------------------

    @precondition(lambda self: self.runs)
    @rule(numbers=st.lists(which, min_size=1, max_size=3), accept=st.booleans())
    def launch(self, numbers: list[int], accept: bool) -> None:
        chosen = dict(self.pick(number) for number in numbers)
        due = [run_id for run_id, run in chosen.items() if run.state == "pending"]
        token = self.world.launch(*chosen, accept=accept)
        assert (token is not None) == bool(due)
        for run_id in due:
            run = chosen[run_id]
            attempt = Try(number=self.world.highest(run_id), clean=run.clean_next, token=str(token))
            attempt.state = "queued" if accept else "submitting"
            assert attempt.number > max(run.last, run.cancelled)
            run.attempts.append(attempt)

    @precondition(lambda self: self.runs)
    @rule(number=which, accept=st.booleans())
    def answer(self, number: int, accept: bool) -> None:
        _, run = self.pick(number)
        if (
            not run.attempts
            or run.attempts[-1].state != "submitting"
            or (run.attempts[-1].begun and not accept)
        ):
            return
        token = run.attempts[-1].token
        hosted = [
            attempt
            for other in self.runs.values()
            for attempt in other.attempts
            if attempt.token == token
        ]
        if accept:
            self.world.ledger.accepted(token, "7", source="local")
        elif not any(attempt.begun for attempt in hosted):
            self.world.ledger.refused(token, "no", source="local")
        else:
            return
        for attempt in hosted:
            if accept and attempt.state == "submitting":
                attempt.state = "queued"
            elif not accept and attempt.is_live:
                attempt.state, attempt.failure, attempt.over = "failed", "refused", True

    @precondition(lambda self: self.runs)
    @rule(number=which)
    def scheduler_lost_it(self, number: int) -> None:
        self.ingest(True)
        run_id, run = self.pick(number)
        if not run.attempts or not run.attempts[-1].is_live:
            return
        attempt = run.attempts[-1]
        state, failure = AttemptState.LOST, FailureClass.AGENT_DIED
        if run.cancelled >= attempt.number:
            state, failure = AttemptState.CANCELLED, FailureClass.CANCELLED
        elif attempt.state != "running":
            failure = FailureClass.NOT_SUBMITTED
        assert self.world.ledger.transition(
            run_id, attempt.number, state, source="local", failure=failure
        )
        attempt.state, attempt.failure = str(state), str(failure)

    @precondition(lambda self: self.runs)
    @rule(
        number=which, epochs=st.integers(1, 2), save=st.booleans(), end=st.sampled_from([*OFTEN, *ENDS]),
        read=st.booleans(),
    )  # fmt: skip
    def a_while_passes(
        self, number: int, epochs: int, save: bool, end: tuple[str, str | None] | None, read: bool
    ) -> None:
        """Let one run get on: what single steps seldom reach by chance."""
        run_id, run = self.pick(number)
        if run.state == "pending":
            self.launch([number], True)
        attempt = run.attempts[-1] if run.attempts else None
        if attempt is None or attempt.over:
            return
        if not attempt.begun:
            self._begin(run_id, run, attempt)
        if attempt.training:
            for _ in range(epochs):
                self._epoch(run_id, run, attempt)
            if save and attempt.step > attempt.saved:
                self._save(run_id, run, attempt)
            if end is not None:
                self._end(run_id, run, attempt, *end)
        if read:
            self.ingest(True)

    # Agents: those of live attempts, and those that were given up and live on ---------------------

    @rule(number=which)
    def agent_begins(self, number: int) -> None:
        if (found := self.pick_attempt(number, training=False)) is not None:
            self._begin(*found)

    def _begin(self, run_id: str, run: Run, attempt: Try) -> None:
        attempt.begun = True
        folder = self.world.folder(run_id)
        if run.cancelled >= attempt.number:
            self._end(run_id, run, attempt, "cancelled", "cancelled")
        elif not folder.claim(attempt.number):
            self._end(run_id, run, attempt, "superseded", "superseded")
        elif not attempt.clean and (done := completed_by(folder, attempt.number)) is not None:
            self._end(run_id, run, attempt, "superseded", "superseded", stands_for=done)
        else:
            resume = None if attempt.clean else next(iter(candidates(folder, attempt.number)), None)
            attempt.training = True
            attempt.from_attempt = resume.attempt if resume else None
            attempt.from_step = resume.step if resume else None
            attempt.step = attempt.saved = attempt.from_step or 0
            self.world.start(
                run_id, attempt.number, resumed=(resume.attempt, resume.step) if resume else None
            )
            attempt.journal.append(("start", None))

    def _speak(self, run: Run, attempt: Try) -> None:
        run.spoke_late = run.spoke_late or not attempt.is_live

    @rule(number=which)
    def agent_trains_an_epoch(self, number: int) -> None:
        if (found := self.pick_attempt(number, training=True)) is not None:
            self._epoch(*found)

    def _epoch(self, run_id: str, run: Run, attempt: Try) -> None:
        self._speak(run, attempt)
        self.score += 1.0
        epoch, attempt.step = attempt.step // 10, attempt.step + 10
        self.world.epoch(run_id, attempt.number, epoch, self.score)
        attempt.journal.append(("epoch", (epoch, self.score)))

    @rule(number=which)
    def agent_saves(self, number: int) -> None:
        found = self.pick_attempt(number, training=True)
        if found is not None and found[2].step > found[2].saved:
            self._save(*found)

    def _save(self, run_id: str, run: Run, attempt: Try) -> None:
        self._speak(run, attempt)
        self.world.checkpoint(run_id, attempt.number, attempt.step)
        attempt.saved = attempt.step
        attempt.journal.append(("checkpoint", attempt.step))

    @rule(number=which, end=st.sampled_from(ENDS))
    def agent_ends(self, number: int, end: tuple[str, str | None]) -> None:
        if (found := self.pick_attempt(number, training=True)) is not None:
            self._end(*found, *end)

    def _end(
        self,
        run_id: str,
        run: Run,
        attempt: Try,
        state: str,
        failure: str | None,
        stands_for: int | None = None,
    ) -> None:
        self._speak(run, attempt)
        self.world.end(run_id, attempt.number, state, failure)
        attempt.over, attempt.training = True, False
        attempt.journal.append(("end", (state, failure, stands_for)))

    # Readers --------------------------------------------------------------------------------------

    @rule(live_only=st.booleans(), twice=st.booleans())
    def ingest(self, live_only: bool, twice: bool = False) -> None:
        reading = [
            (run_id, attempt.number)
            for run_id, run in self.runs.items()
            for attempt in run.attempts
            if attempt.is_live or not live_only
        ]
        for _ in range(1 + twice):
            if live_only:
                ingest_live(self.world.ledger, self.world.workspace)
            else:
                ingest(self.world.ledger, self.world.workspace, reading)
        for run_id, number in reading:
            self._read(self.runs[run_id], number)
        if not live_only:
            self._every_event_was_counted_once()

    def _read(self, run: Run, number: int) -> None:
        (attempt,) = [attempt for attempt in run.attempts if attempt.number == number]
        for kind, what in attempt.journal[attempt.read :]:
            if kind == "start":
                run.clean_next = run.clean_next and attempt.number <= run.tries_from
                attempt.state = "running" if attempt.is_live else attempt.state
            elif kind == "checkpoint":
                attempt.told_saved = max(attempt.told_saved, what)
            elif kind == "end" and attempt.is_live:
                state, failure, stands_for = what
                attempt.state, attempt.failure = state, failure
                if stands_for is not None:
                    attempt.state, attempt.failure, attempt.from_attempt = (
                        "completed",
                        None,
                        stands_for,
                    )
        attempt.read = len(attempt.journal)

    def _every_event_was_counted_once(self) -> None:
        rows = [
            (row["run_id"], row["attempt"], row["epoch"])
            for row in self.world.rows(m.epoch_metrics)
        ]
        written = [
            (run_id, attempt.number, what[0])
            for run_id, run in self.runs.items()
            for attempt in run.attempts
            for kind, what in attempt.journal
            if kind == "epoch"
        ]
        assert sorted(rows) == sorted(written)

    @rule()
    def a_rebuilt_ledger_says_the_same(self) -> None:
        self.ingest(False)
        lost = self.world.ledger
        made = self.world.open(self._fresh())
        rebuild(made, self.world.workspace)
        for run_id, run in self.runs.items():
            for attempt in run.attempts:
                if not attempt.is_live:
                    # What only the scheduler knew, the next reconciliation hears from it again.
                    to = AttemptState(attempt.state)
                    made.transition(
                        run_id, attempt.number, to, source="local", failure=attempt.failure
                    )
        states = self.world.states(made)
        told = {run_id for run_id, run in self.runs.items() if not run.spoke_late}
        assert {run_id: states[run_id] for run_id in told} == {
            run_id: self.runs[run_id].state for run_id in told
        }
        clean = {row["run_id"]: bool(row["clean_next"]) for row in self.world.rows(m.runs, made)}
        assert {run_id: clean[run_id] for run_id in told} == {
            run_id: self.runs[run_id].clean_next for run_id in told
        }
        numbers = [row for row in self.world.rows(m.results, made) if row["run_id"] in told]
        assert numbers == [row for row in self.world.rows(m.results, lost) if row["run_id"] in told]
        self._one_live_attempt(made)
        made.engine.dispose()

    # What always holds ----------------------------------------------------------------------------

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        if hasattr(self, "world"):
            assert self.world.states() == {run_id: run.state for run_id, run in self.runs.items()}

    @invariant()
    def an_end_is_an_end_unless_the_user_asked(self) -> None:
        for run_id, run in getattr(self, "runs", {}).items():
            state = run.state
            assert run.asked or run.before not in FINAL or state == run.before, run_id
            run.before, run.asked = state, False

    @invariant()
    def nothing_is_tried_too_often_or_twice_at_once(self) -> None:
        if not hasattr(self, "world"):
            return
        self._one_live_attempt(self.world.ledger)
        for run in self.runs.values():
            spent = [a for a in run.attempts if a.number > run.tries_from and a.state == "failed"]
            assert len(spent) <= 3
            assert sum(attempt.is_live for attempt in run.attempts) <= 1

    def _one_live_attempt(self, ledger: Ledger) -> None:
        live = [
            row["run_id"] for row in self.world.rows(m.attempts, ledger) if row["state"] in LIVE
        ]
        assert len(live) == len(set(live))

    @invariant()
    def only_the_lineage_of_the_completed_attempt_counts(self) -> None:
        if not hasattr(self, "world"):
            return
        found = {
            row["run_id"]: row for row in self.world.rows(m.results) if row["metric"] == "top1"
        }
        for run_id, run in self.runs.items():
            scores = run.results()
            assert (run_id in found) == bool(scores), run_id
            if scores:
                row = found[run_id]
                assert (row["last_epoch"], row["last"]) == (max(scores), scores[max(scores)])
                assert row["best"] == max(scores.values())


def _histories(count: int) -> settings:
    return settings(
        max_examples=count,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class Longer(LedgerMachine):
    """The same, in more histories."""


LedgerMachine.TestCase.settings = _histories(35)
Longer.TestCase.settings = _histories(200)
TestLedgerAgainstItsModel = LedgerMachine.TestCase
TestLedgerAgainstItsModelAtLength = pytest.mark.long(Longer.TestCase)

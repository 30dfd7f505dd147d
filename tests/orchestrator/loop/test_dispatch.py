"""Starting what is due, through a real queue on disk that nobody serves."""

import contextlib
from collections.abc import Sequence

import pytest

from vtjobs.db.adopt_allocations import adopt_allocation
from vtjobs.db.ledger import LATER_S
from vtjobs.db.scheduler_notes import away, note_away, take_turn
from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.errors import SchedulerUnreachable, Unauthenticated
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape
from vtjobs.jobs.workspace.allocation import Place as Allocated
from vtjobs.jobs.workspace.grid_settings import GridSettings
from vtjobs.orchestrator.backends.base import (
    JobState,
    JobView,
    Key,
    Place,
    Room,
    Submission,
    SubmitOutcome,
)
from vtjobs.orchestrator.loop.dispatch import HAND_ON_S, LAUNCH_S, dispatch
from vtjobs.orchestrator.loop.tick import tick
from vtjobs.orchestrator.requests import actions

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab, SleepingBackend
from ...support.ledgers import an_allocation


class SlowScheduler(SleepingBackend):
    """A scheduler that does not always answer, and cannot be made to by the real one."""

    outcome = SubmitOutcome.ACCEPTED
    reachable = True
    has_it = False

    def submit(self, allocation: Allocation) -> Submission:
        if self.outcome is SubmitOutcome.ACCEPTED or self.has_it:
            super().submit(allocation)
        return Submission(outcome=self.outcome, job_id=allocation.token, reason="no such partition")

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        if not self.reachable:
            raise SchedulerUnreachable("no answer")
        return super().observe(places)


@pytest.fixture
def scheduler(quiet_lab: Lab) -> SlowScheduler:
    backend = SlowScheduler(quiet_lab.context.workspace)
    quiet_lab.context._backends["local"] = backend
    return backend


def queued(lab: Lab) -> list[str]:
    """Return the runs in the queue, in the order they would be served."""
    backend = lab.context.backend("local")
    assert isinstance(backend, SleepingBackend)
    found = []
    for token, _ in backend.queue.waiting():
        content = Allocation.from_dict(read_json(lab.context.workspace.allocation(token)))
        found += [task.run_id for task in content.all_tasks]
    return found


def test_pending_runs_are_queued_in_the_order_of_their_grid(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="4"))
    assert dispatch(quiet_lab.context).attempts == 4
    assert queued(quiet_lab) == runs
    assert set(quiet_lab.states().values()) == {"queued"}


def test_a_second_pass_starts_nothing(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="4"))
    assert [dispatch(quiet_lab.context).attempts for _ in range(3)] == [4, 0, 0]
    assert len(queued(quiet_lab)) == 4


def test_held_runs_stay_where_they_are_until_they_are_released(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="3"))
    actions.hold(quiet_lab.context, runs[:2])
    dispatch(quiet_lab.context)
    assert queued(quiet_lab) == runs[2:]
    actions.release(quiet_lab.context, runs[:1])
    dispatch(quiet_lab.context)
    assert sorted(queued(quiet_lab)) == sorted([runs[0], runs[2]])


def test_no_more_runs_are_started_than_the_grid_allows_at_a_time(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="5", extra="max_running: 2"))
    assert [dispatch(quiet_lab.context).attempts for _ in range(2)] == [2, 0]


STAGES = """\
stages:
  - {name: pretrain, heads: [relvit]}
  - {name: finetune, heads: [supervised], init_from: pretrain}
"""


def test_a_later_stage_waits_for_its_parent(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(
        tiny_grid(seeds="1", extra=STAGES).replace("heads: [supervised]\n", "", 1)
    )
    dispatch(quiet_lab.context)
    assert len(runs) == 2 and len(queued(quiet_lab)) == 1
    (first,) = queued(quiet_lab)
    quiet_lab.context.ledger.transition(first, 1, AttemptState.COMPLETED, source="test")
    assert dispatch(quiet_lab.context).attempts == 1


def test_a_clear_refusal_fails_the_runs_and_keeps_the_reason(
    quiet_lab: Lab, scheduler: SlowScheduler
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    scheduler.outcome = SubmitOutcome.REFUSED
    quiet_lab.tick()
    quiet_lab.tick()
    (attempt,) = quiet_lab.attempts(run_id)
    assert (attempt.state, attempt.signature) == ("failed", "no such partition")
    assert quiet_lab.state(run_id) == "failed"


def test_an_unclear_answer_is_adopted_where_the_scheduler_has_the_job(
    quiet_lab: Lab, scheduler: SlowScheduler
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    scheduler.outcome, scheduler.has_it = SubmitOutcome.UNCLEAR, True
    quiet_lab.tick()
    assert quiet_lab.attempts(run_id)[0].state == "submitting"
    quiet_lab.tick()
    assert quiet_lab.attempts(run_id)[0].state == "queued"
    assert queued(quiet_lab) == [run_id]


def test_an_unclear_answer_is_submitted_again_once_where_the_scheduler_has_nothing(
    quiet_lab: Lab, scheduler: SlowScheduler
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    scheduler.outcome = SubmitOutcome.UNCLEAR
    quiet_lab.tick()
    quiet_lab.tick()
    assert queued(quiet_lab) == [], "the submitter may still be at it"
    quiet_lab.clock.ahead_s = LAUNCH_S + 1
    scheduler.outcome = SubmitOutcome.ACCEPTED
    quiet_lab.tick()
    quiet_lab.tick()
    assert queued(quiet_lab) == [run_id]
    assert [attempt.state for attempt in quiet_lab.attempts(run_id)] == ["queued"]


def test_a_scheduler_that_cannot_be_asked_changes_nothing_and_is_named(
    quiet_lab: Lab, scheduler: SlowScheduler
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    for path in scheduler.queue.root.glob("queue/*"):
        path.unlink()
    scheduler.reachable = False
    report = tick(quiet_lab.context)
    assert report.unreachable["local"].reason == "no answer"
    assert quiet_lab.attempts(run_id)[0].state == "queued"
    scheduler.reachable = True
    quiet_lab.tick(start=False)
    assert quiet_lab.attempts(run_id)[0].state == "lost"


class NarrowScheduler(SleepingBackend):
    """A scheduler whose limit cannot be asked for.

    It takes so many places of one allocation, and no more.
    """

    chains = True
    hands_on = True
    most = 2

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        return Room(lanes=1, tasks=1, places=1000)

    def submit(self, allocation: Allocation) -> Submission:
        if len(allocation.tasks) > self.most:
            return Submission(outcome=SubmitOutcome.LATER, reason="limit")
        return super().submit(allocation)


@pytest.fixture
def narrow(quiet_lab: Lab) -> NarrowScheduler:
    backend = NarrowScheduler(quiet_lab.context.workspace)
    quiet_lab.context._backends["local"] = backend
    return backend


@pytest.mark.usefixtures("narrow")
def test_where_a_limit_refuses_a_large_array_smaller_ones_are_tried_at_once(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="5"))
    assert dispatch(quiet_lab.context).attempts == 5
    assert sorted(queued(quiet_lab)) == sorted(runs)


def test_a_refusal_that_comes_after_another_submitter_was_accepted_changes_nothing(
    quiet_lab: Lab,
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    ledger, (attempt,) = quiet_lab.context.ledger, quiet_lab.attempts(run_id)
    assert attempt.state == "queued"
    assert (
        ledger.refused(attempt.token, "AssocMaxSubmitJobLimit", source="slurm", later=True) is False
    )
    assert [attempt.state for attempt in quiet_lab.attempts(run_id)] == ["queued"]


def test_where_a_limit_refuses_even_one_place_the_rest_waits_for_a_later_pass(
    quiet_lab: Lab, narrow: NarrowScheduler
) -> None:
    narrow.most = 0
    quiet_lab.submit(tiny_grid(seeds="5"))
    assert dispatch(quiet_lab.context).attempts == 0
    assert set(quiet_lab.states().values()) == {"pending"}
    assert list(quiet_lab.context.workspace.allocations.glob("vtj-*")) == [], (
        "nothing is left of what was refused"
    )
    narrow.most = 5
    quiet_lab.clock.ahead_s = LATER_S + 1
    assert dispatch(quiet_lab.context).attempts == 5


def test_what_an_agent_may_be_about_to_hand_on_is_not_started_beside_it(
    quiet_lab: Lab, narrow: NarrowScheduler
) -> None:
    narrow.most = 5
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), ended("timeout", "walltime"))
    quiet_lab.tick()
    assert (quiet_lab.state(run_id), len(quiet_lab.attempts(run_id))) == ("pending", 1)
    quiet_lab.clock.ahead_s = HAND_ON_S + 1
    quiet_lab.tick()
    assert len(quiet_lab.attempts(run_id)) == 2


def test_what_only_the_scheduler_says_was_preempted_has_no_agent_and_is_started_at_once(
    quiet_lab: Lab, narrow: NarrowScheduler
) -> None:
    narrow.most = 5
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started())
    quiet_lab.tick(start=False)
    ledger = quiet_lab.context.ledger
    ledger.transition(
        run_id, 1, AttemptState.PREEMPTED, source="squeue", failure=FailureClass.STOPPED
    )
    assert dispatch(quiet_lab.context).attempts == 1


def test_an_agent_that_died_in_its_second_try_hands_nothing_on(
    quiet_lab: Lab, narrow: NarrowScheduler
) -> None:
    narrow.most = 5
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), ended("failed", "crash"))
    quiet_lab.tick(start=False)
    ledger, token = quiet_lab.context.ledger, quiet_lab.attempts(run_id)[0].token
    again = an_allocation([(run_id, 2)], token="vtj-again")
    adopt_allocation(ledger, changed(again, inside=Allocated(token=token, index=0)))
    journal(quiet_lab, run_id, 2, started(attempt=2))
    quiet_lab.tick(start=False)
    ledger.transition(run_id, 2, AttemptState.LOST, source="local", failure=FailureClass.AGENT_DIED)
    quiet_lab.tick()
    assert [attempt.state for attempt in quiet_lab.attempts(run_id)] == ["failed", "lost", "queued"]


def test_a_cancel_that_does_not_reach_its_scheduler_keeps_nothing_else_from_being_done(
    quiet_lab: Lab, scheduler: SlowScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()

    def cancel(places: Sequence[Place]) -> None:
        raise SchedulerUnreachable("no answer")

    monkeypatch.setattr(scheduler, "cancel", cancel)
    with contextlib.suppress(SchedulerUnreachable):
        actions.cancel(quiet_lab.context, [first])
    (second,) = quiet_lab.submit(tiny_grid(name="other", seeds="[7]"))
    report = tick(quiet_lab.context)
    assert report.problems == ["a cancellation could not be sent to the scheduler: no answer"]
    assert quiet_lab.state(second) == "queued"


def test_what_was_accepted_while_the_scheduler_was_being_asked_is_not_taken_for_gone(
    quiet_lab: Lab, scheduler: SlowScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    scheduler.outcome = SubmitOutcome.UNCLEAR
    quiet_lab.tick()
    (attempt,) = quiet_lab.attempts(run_id)

    def observe(places: Sequence[Place]) -> dict[Key, JobView]:
        # Another process hears from the scheduler right after it was asked here.
        quiet_lab.context.ledger.accepted(attempt.token, "7", source="local")
        return {place.key: JobView(state=JobState.ABSENT) for place in places}

    monkeypatch.setattr(scheduler, "observe", observe)
    quiet_lab.clock.ahead_s = LAUNCH_S + 1
    quiet_lab.tick(start=False)
    assert [attempt.state for attempt in quiet_lab.attempts(run_id)] == ["queued"]


def test_the_next_attempt_is_numbered_above_every_claim_and_cancel_on_disk(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    quiet_lab.run(runs[0]).claim(7)
    quiet_lab.run(runs[1]).cancel(3)
    dispatch(quiet_lab.context)
    assert [quiet_lab.attempts(run_id)[0].number for run_id in runs] == [8, 4]


# Chains, bad nodes, limits ------------------------------------------------------------------------


class ChainingScheduler(SlowScheduler):
    """A scheduler that can start one job after another, and whose arrays and limits are small."""

    chains = True
    hands_on = True
    places = 64
    free: int | None = None
    most = 10**6

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        free = {} if self.free is None else {"jobs": self.free}
        return Room(lanes=1, tasks=1, places=self.places, free=free)

    def submit(self, allocation: Allocation) -> Submission:
        self.outcome = SubmitOutcome.ACCEPTED if self.most > 0 else SubmitOutcome.LATER
        self.most -= 1
        if self.free is not None:
            self.free -= len(allocation.tasks)
        return super().submit(allocation)


@pytest.fixture
def chaining(quiet_lab: Lab) -> ChainingScheduler:
    backend = ChainingScheduler(quiet_lab.context.workspace)
    quiet_lab.context._backends["local"] = backend
    return backend


def allocations(lab: Lab) -> list[Allocation]:
    """Return what was handed on, oldest first."""
    found = [
        Allocation.from_dict(read_json(path))
        for path in lab.context.workspace.allocations.glob("vtj-*.json")
    ]
    return sorted(found, key=lambda content: content.created_at)


def two_stages(lab: Lab) -> tuple[str, str]:
    parent, child = lab.submit(
        tiny_grid(seeds="1", extra=STAGES).replace("heads: [supervised]\n", "", 1)
    )
    return parent, child


def test_a_later_stage_is_chained_to_its_parents_job_in_the_same_pass(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    parent, child = two_stages(quiet_lab)
    assert dispatch(quiet_lab.context).attempts == 2
    first, second = allocations(quiet_lab)
    assert [task.run_id for task in first.all_tasks] == [parent] and first.after == ()
    assert [task.run_id for task in second.all_tasks] == [child] and second.after == (first.token,)
    assert second.all_tasks[0].parent == parent
    assert dispatch(quiet_lab.context).attempts == 0


def test_a_stage_whose_parent_has_completed_waits_for_no_job(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    parent, child = two_stages(quiet_lab)
    actions.hold(quiet_lab.context, [child])
    dispatch(quiet_lab.context)
    quiet_lab.context.ledger.transition(parent, 1, AttemptState.COMPLETED, source="test")
    actions.release(quiet_lab.context, [child])
    dispatch(quiet_lab.context)
    assert allocations(quiet_lab)[-1].after == ()


def test_a_stage_is_not_chained_to_a_submission_that_nobody_has_answered(
    quiet_lab: Lab, scheduler: SlowScheduler
) -> None:
    scheduler.chains = scheduler.hands_on = True
    parent, child = two_stages(quiet_lab)
    scheduler.outcome = SubmitOutcome.UNCLEAR
    dispatch(quiet_lab.context)
    assert quiet_lab.states() == {parent: "queued", child: "pending"}


def test_a_stage_waits_for_its_parent_where_jobs_cannot_be_chained(
    quiet_lab: Lab, scheduler: SlowScheduler
) -> None:
    parent, child = two_stages(quiet_lab)
    assert dispatch(quiet_lab.context).attempts == 1
    assert quiet_lab.states() == {parent: "queued", child: "pending"}


def test_runs_that_avoid_the_same_nodes_share_an_allocation(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="4"))
    dispatch(quiet_lab.context)
    for run_id, failure, host in zip(
        runs,
        ("hardware", "hardware", "hardware", "user_error"),
        ("g1", "g1", "g2", "g1"),
        strict=True,
    ):
        fields = {"failure": failure, "host": host}
        quiet_lab.context.ledger.transition(run_id, 1, AttemptState.FAILED, source="test", **fields)
    dispatch(quiet_lab.context)
    found = {
        content.exclude: [task.run_id for task in content.all_tasks]
        for content in allocations(quiet_lab)[1:]
    }
    assert found == {("g1",): runs[:2], ("g2",): runs[2:3], (): runs[3:]}


class BlackHole(SlowScheduler):
    """A scheduler on whose node gpu1 no agent can start, and which says so in its rows."""

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        end = {"end": AttemptState.LOST, "failure": FailureClass.AGENT_DIED}
        view = JobView(state=JobState.ENDED, raw="FAILED exit 127:0", node="gpu1", **end)
        return {place.key: view for place in places}


@pytest.fixture
def swallowed(quiet_lab: Lab) -> list[str]:
    """Runs whose jobs ended on the same node before their agents began."""
    quiet_lab.context._backends["local"] = BlackHole(quiet_lab.context.workspace)
    runs = quiet_lab.submit(tiny_grid(name="first", seeds="1"))
    runs += quiet_lab.submit(tiny_grid(name="second", seeds="[1]"))
    quiet_lab.tick()
    for allocation in allocations(quiet_lab):
        log = quiet_lab.context.workspace.agent_log(allocation.token, 0, 0)
        log.write_text("loading modules\nmodule: unknown module cudnn/9\n\n")
    return runs


def test_new_jobs_of_all_runs_avoid_a_node_where_agents_cannot_start(
    quiet_lab: Lab, swallowed: list[str]
) -> None:
    fresh = quiet_lab.submit(tiny_grid(name="other", seeds="[7]"))
    report = tick(quiet_lab.context)
    made = allocations(quiet_lab)
    newest = {task.run_id: one.exclude for one in made for task in one.all_tasks}
    assert newest == {run_id: ("gpu1",) for run_id in [*swallowed, *fresh]}
    assert report.problems == [
        "local: jobs avoid gpu1 for 6 h, as 2 failed there"
        " (before vtjobs started on gpu1: module: unknown module cudnn/9)"
    ]


def test_what_a_set_up_printed_is_the_error_of_the_attempt(
    quiet_lab: Lab, swallowed: list[str]
) -> None:
    quiet_lab.tick(start=False)
    attempt = quiet_lab.attempts(swallowed[0])[0]
    assert (attempt.failure, attempt.host) == ("not_submitted", "gpu1")
    assert attempt.error.splitlines() == [
        "before vtjobs started on gpu1: module: unknown module cudnn/9",
        "loading modules",
        "module: unknown module cudnn/9",
    ]


def test_a_job_that_printed_nothing_is_asked_about_its_files(
    quiet_lab: Lab, swallowed: list[str]
) -> None:
    folder = quiet_lab.context.workspace.allocations
    for log in folder.glob("*.log"):
        log.unlink()
    quiet_lab.tick(start=False)
    assert quiet_lab.attempts(swallowed[0])[0].error.startswith(
        f"before vtjobs started on gpu1: nothing was printed. Is {folder} there?"
    )


def test_a_run_behind_one_that_has_started_blames_no_node(quiet_lab: Lab) -> None:
    backend = BlackHole(quiet_lab.context.workspace)
    quiet_lab.context._backends["local"] = backend
    first, second = quiet_lab.submit(tiny_grid(seeds="2"))
    made = quiet_lab.allocate([first, second])
    quiet_lab.context.ledger.accepted(made.token, "1", source="local")
    journal(quiet_lab, first, 1, started(attempt=1))
    quiet_lab.clock.ahead_s = 3600
    quiet_lab.tick(start=False)
    assert [attempt.host for attempt in quiet_lab.attempts(second)] == [None]


def test_an_array_is_no_longer_than_the_site_allows(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    chaining.places = 2
    quiet_lab.submit(tiny_grid(seeds="5"))
    dispatch(quiet_lab.context)
    assert sorted(len(content.tasks) for content in allocations(quiet_lab)) == [1, 2, 2]


def test_no_more_is_submitted_than_the_site_has_room_for(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    chaining.free = 3
    runs = quiet_lab.submit(tiny_grid(seeds="5"))
    assert dispatch(quiet_lab.context).attempts == 3
    assert [quiet_lab.states()[run_id] for run_id in runs] == ["queued"] * 3 + ["pending"] * 2
    assert dispatch(quiet_lab.context).attempts == 0
    chaining.free = 1
    assert dispatch(quiet_lab.context).attempts == 1


def test_a_limit_of_the_site_ends_the_pass_and_costs_no_try(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    chaining.places, chaining.most = 1, 0
    runs = quiet_lab.submit(tiny_grid(seeds="5", extra="retries: 1"))
    found = dispatch(quiet_lab.context)
    assert (found.attempts, found.problems, found.unreachable) == (0, [], {})
    assert allocations(quiet_lab) == [], (
        "a rebuilt ledger must not take it for one that waits to be submitted"
    )
    assert quiet_lab.attempts(runs[0]) == []
    assert set(quiet_lab.states().values()) == {"pending"}
    chaining.most = 10
    assert dispatch(quiet_lab.context).attempts == 0, "who was told to come later waits a minute"
    quiet_lab.clock.ahead_s = LATER_S + 1
    assert dispatch(quiet_lab.context).attempts == 5
    assert sorted(queued(quiet_lab)) == sorted(runs)


def test_a_hidden_limit_is_remembered_and_tried_with_one_place_a_minute(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    chaining.places, chaining.most = 1, 2
    runs = quiet_lab.submit(tiny_grid(seeds="9"))
    assert dispatch(quiet_lab.context).attempts == 2
    ledger, refused = quiet_lab.context.ledger, chaining.most
    assert dispatch(quiet_lab.context).attempts == 0
    assert chaining.most == refused, "nothing is tried before the minute is over"
    chaining.most = 1
    ledger.transition(runs[0], 1, AttemptState.COMPLETED, source="test")
    assert dispatch(quiet_lab.context).attempts == 1, "a place that came free is taken at once"
    quiet_lab.clock.ahead_s = LATER_S + 1
    chaining.most = 0
    assert dispatch(quiet_lab.context).attempts == 0
    assert chaining.most == -1, "one was tried"


def test_grids_under_one_limit_take_turns_and_another_limit_is_no_matter_of_theirs(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    chaining.free = 4
    first = quiet_lab.submit(tiny_grid(name="first", seeds="6"))
    assert dispatch(quiet_lab.context).attempts == 4
    second = quiet_lab.submit(tiny_grid(name="second", seeds="[20, 21, 22]"))
    assert dispatch(quiet_lab.context).attempts == 0
    for run_id in first[:3]:
        quiet_lab.context.ledger.transition(run_id, 1, AttemptState.COMPLETED, source="test")
    chaining.free = 3
    assert dispatch(quiet_lab.context).attempts == 3
    states = quiet_lab.states()
    assert [states[run_id] for run_id in second] == ["queued", "queued", "pending"]
    assert [states[run_id] for run_id in first[3:]] == ["queued", "queued", "pending"]


def test_a_scheduler_that_is_back_is_so_for_every_grid_that_waits(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    chaining.poll_s, chaining.free = 30.0, 0
    quiet_lab.submit(tiny_grid(name="first", seeds="1"))
    quiet_lab.submit(tiny_grid(name="second", seeds="[9]"))
    note_away(quiet_lab.context.ledger, "local", SchedulerUnreachable("no answer"))
    report = tick(quiet_lab.context)
    assert report.unreachable == {}
    assert away(quiet_lab.context.ledger) == {}


def test_what_fits_under_a_limit_is_submitted_before_it_is_met(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    chaining.places, chaining.most = 2, 1
    runs = quiet_lab.submit(tiny_grid(seeds="5"))
    assert dispatch(quiet_lab.context).attempts == 2
    assert queued(quiet_lab) == runs[:2]
    assert set(quiet_lab.states().values()) == {"queued", "pending"}


def test_a_scheduler_that_is_away_is_tried_once_per_turn_and_forgiven_once_it_takes_something(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    chaining.poll_s = 30.0
    note_away(quiet_lab.context.ledger, "local", SchedulerUnreachable("no answer"))
    assert take_turn(quiet_lab.context.ledger, "tried.local", every_s=30.0)
    found = dispatch(quiet_lab.context)
    assert (found.attempts, str(found.unreachable["local"])) == (0, "no answer")
    quiet_lab.clock.ahead_s = 31
    assert dispatch(quiet_lab.context).attempts == 1
    assert away(quiet_lab.context.ledger) == {}
    assert quiet_lab.state(run_id) == "queued"


def test_a_scheduler_that_refused_a_token_is_tried_at_once_by_whoever_has_another(
    quiet_lab: Lab, chaining: ChainingScheduler
) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    chaining.poll_s = 30.0
    note_away(quiet_lab.context.ledger, "local", Unauthenticated("wrong token"))
    assert take_turn(quiet_lab.context.ledger, "tried.local", every_s=30.0)
    assert dispatch(quiet_lab.context).attempts == 1
    assert away(quiet_lab.context.ledger) == {}

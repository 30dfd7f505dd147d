"""What the ledger remembers of schedulers that are slow or away."""

from sqlalchemy import select

from vtjobs.db import models as m
from vtjobs.db import scheduler_notes
from vtjobs.db.engine import reading
from vtjobs.jobs.errors import SchedulerSlow, SchedulerUnreachable

from ..support.ledgers import World

LATE = SchedulerSlow("squeue did not answer within 2 s")


def test_a_scheduler_is_away_since_it_was_first_not_reached(world: World) -> None:
    assert scheduler_notes.away(world.ledger) == {}
    scheduler_notes.note_away(world.ledger, "slurm", SchedulerUnreachable("no answer"))
    since = scheduler_notes.away(world.ledger)["slurm"].since
    world.now += 500
    scheduler_notes.note_away(world.ledger, "slurm", SchedulerUnreachable("connection refused"))
    scheduler_notes.note_away(world.ledger, "other", SchedulerUnreachable("gone"))
    away = scheduler_notes.away(world.ledger)["slurm"]
    assert (away.since, away.reason) == (since, "connection refused")
    assert set(scheduler_notes.away(world.ledger)) == {"slurm", "other"}
    scheduler_notes.note_answer(world.ledger, "slurm", every_s=30)
    assert set(scheduler_notes.away(world.ledger)) == {"other"}
    world.now += 500
    scheduler_notes.note_away(world.ledger, "slurm", SchedulerUnreachable("no answer"))
    assert scheduler_notes.away(world.ledger)["slurm"].since > since + 500, (
        "a new absence has a new beginning"
    )


def test_a_scheduler_that_is_asked_at_any_time_and_was_never_away_is_not_written_down(
    world: World,
) -> None:
    scheduler_notes.note_answer(world.ledger, "local", every_s=0)
    with reading(world.ledger.engine) as connection:
        kept = connection.execute(select(m.meta.c.key)).scalars().all()
    assert not [key for key in kept if "local" in key]


def test_a_scheduler_without_an_answer_in_time_is_slow_for_five_minutes_and_then_away(
    world: World,
) -> None:
    def is_slow() -> bool:
        scheduler_notes.note_away(world.ledger, "slurm", LATE)
        return scheduler_notes.away(world.ledger)["slurm"].is_slow

    assert is_slow()
    world.now += 290
    assert is_slow()
    world.now += 5000
    assert scheduler_notes.away(world.ledger)["slurm"].is_slow, "nobody has asked since"
    assert not is_slow()


def test_a_scheduler_that_says_no_is_not_slow(world: World) -> None:
    scheduler_notes.note_away(world.ledger, "slurm", LATE)
    scheduler_notes.note_away(world.ledger, "slurm", SchedulerUnreachable("connection refused"))
    assert not scheduler_notes.away(world.ledger)["slurm"].is_slow


def test_the_last_answer_of_a_scheduler_is_known_while_it_gives_none(world: World) -> None:
    scheduler_notes.note_away(world.ledger, "slurm", LATE)
    assert scheduler_notes.away(world.ledger)["slurm"].answered is None
    scheduler_notes.note_answer(world.ledger, "slurm", every_s=30)
    answered, world.now = world.now, world.now + 60
    for _ in range(2):
        scheduler_notes.note_away(world.ledger, "slurm", LATE)
        found = scheduler_notes.away(world.ledger)["slurm"].answered
        assert found is not None and abs(found - answered) < 5


def test_a_slow_scheduler_is_waited_for_longer_once_in_five_minutes(world: World) -> None:
    assert not scheduler_notes.is_overdue(world.ledger, "slurm")
    scheduler_notes.note_away(world.ledger, "slurm", LATE)
    assert not scheduler_notes.is_overdue(world.ledger, "slurm")
    for _ in range(2):
        world.now += 310
        turns = [scheduler_notes.is_overdue(world.ledger, "slurm") for _ in range(3)]
        assert turns == [True, False, False]
    scheduler_notes.note_away(world.ledger, "slurm", SchedulerUnreachable("connection refused"))
    world.now += 310
    assert not scheduler_notes.is_overdue(world.ledger, "slurm"), "it said no at once"


def test_a_try_that_failed_is_forgotten_with_the_absence(world: World) -> None:
    scheduler_notes.note_away(world.ledger, "slurm", LATE)
    assert scheduler_notes.may_ask(world.ledger, "slurm", "tried", every_s=30)
    assert not scheduler_notes.may_ask(world.ledger, "slurm", "tried", every_s=30)
    scheduler_notes.note_answer(world.ledger, "slurm", every_s=30)
    scheduler_notes.note_away(world.ledger, "slurm", LATE)
    assert scheduler_notes.may_ask(world.ledger, "slurm", "tried", every_s=30)

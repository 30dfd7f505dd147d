"""One pass over the workspace."""

import json
import os
import shutil

import pytest
from sqlalchemy import update

from vtjobs.db import models as m
from vtjobs.db.engine import writing
from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.workspace.journal import encode
from vtjobs.jobs.workspace.paths import WorkspaceUnreadable
from vtjobs.orchestrator.loop.tick import settle, tick

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab


def test_an_end_record_decides_even_where_the_scheduler_says_the_job_is_gone(
    quiet_lab: Lab,
) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    quiet_lab.tick()
    shutil.rmtree(quiet_lab.context.workspace.local_queue() / "queue")
    journal(quiet_lab, runs[0], 1, started(), scored(90.0), ended("completed"))
    quiet_lab.tick(start=False)
    assert [quiet_lab.attempts(run_id)[0].state for run_id in runs] == ["completed", "lost"]


def test_an_agent_that_died_without_a_word_costs_its_run_no_try(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1", extra="retries: 1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), ("checkpoint", {"epoch": 0, "step": 4, "bytes": 1}))
    shutil.rmtree(quiet_lab.context.workspace.local_queue() / "queue")
    quiet_lab.tick()
    quiet_lab.tick()
    assert [(attempt.state, attempt.failure) for attempt in quiet_lab.attempts(run_id)] == [
        ("lost", "agent_died"),
        ("queued", None),
    ]


def test_the_schedulers_word_for_the_start_is_kept_until_the_run_has_started(
    quiet_lab: Lab,
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    quiet_lab.tick()
    expected = quiet_lab.attempts(run_id)[0].starts_at
    assert expected is not None
    journal(quiet_lab, run_id, 1, started())
    quiet_lab.tick()
    os.utime(
        quiet_lab.context.workspace.local_queue() / "queue" / f"{token(quiet_lab, run_id)}.json"
    )
    quiet_lab.tick()
    assert quiet_lab.attempts(run_id)[0].starts_at == expected


def token(lab: Lab, run_id: str) -> str:
    return str(lab.attempts(run_id)[0].token)


def test_three_infrastructure_ends_without_a_new_checkpoint_are_a_failure(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    for number in (1, 2, 3):
        quiet_lab.tick()
        journal(quiet_lab, run_id, number, started(attempt=number), ended("preempted", "stopped"))
    quiet_lab.tick()
    assert quiet_lab.state(run_id) == "failed"
    assert len(quiet_lab.attempts(run_id)) == 3


def test_a_torn_tail_is_dropped_and_what_follows_it_later_is_read(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started())
    path = quiet_lab.run(run_id).journal(1, 0)
    line = encode({"seq": 2, "at": 2.0, "kind": "progress", "epoch": 0, "step": 5, "steps": 16})
    whole = path.read_bytes()
    path.write_bytes(whole + line[:20])
    quiet_lab.tick()
    assert (quiet_lab.attempts(run_id)[0].state, quiet_lab.attempts(run_id)[0].step) == (
        "running",
        None,
    )
    path.write_bytes(whole + line)
    quiet_lab.tick()
    assert quiet_lab.attempts(run_id)[0].step == 5


def test_reading_a_journal_again_changes_nothing(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), scored(90.0), ended("completed"))
    assert tick(quiet_lab.context).events == 3
    before = quiet_lab.attempts(run_id)
    assert tick(quiet_lab.context).events == 0
    assert quiet_lab.attempts(run_id) == before


def test_an_allocation_file_that_the_ledger_does_not_know_is_taken_in(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    quiet_lab.tick()
    quiet_lab.lose_ledger()
    quiet_lab.tick()
    assert quiet_lab.states() == dict.fromkeys(runs, "queued")
    assert all(len(quiet_lab.attempts(run_id)) == 1 for run_id in runs)


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (None, "Is the file system mounted"),
        ({"id": "0" * 32, "version": 1, "ledger_host": "login1"}, "is now a different workspace"),
        ("", "is missing or damaged"),
    ],
)
def test_a_workspace_that_went_away_or_was_replaced_stops_everything_and_nothing_is_created(
    quiet_lab: Lab, identity: object, message: str
) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    path = quiet_lab.root / "workspace.json"
    if identity is None:
        # As where a file system is not mounted.
        path.unlink()
        quiet_lab.context.workspace.identity_copy.unlink()
    else:
        path.write_text(json.dumps(identity) if identity else "")
    with pytest.raises(WorkspaceUnreadable, match=message):
        quiet_lab.tick()
    assert set(quiet_lab.states().values()) == {"pending"}
    assert not list(quiet_lab.context.workspace.allocations.glob("vtj-*"))


def test_settling_returns_as_soon_as_nothing_is_live(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), scored(90.0), ended("completed"))
    settle(quiet_lab.context, 5)
    assert quiet_lab.state(run_id) == "completed"


def test_a_pass_does_not_submit_what_gives_way_before_the_other_one_has_begun(
    quiet_lab: Lab,
) -> None:
    mine, other = quiet_lab.submit(tiny_grid(seeds="2"))
    given, waiting = (quiet_lab.allocate([run_id]) for run_id in (mine, other))
    # An agent wrote both down and submitted neither; its time to do so is over.
    forget_acceptance(quiet_lab)
    workspace = quiet_lab.context.workspace
    content = {"backend": "local", "command": ["true"], "gives_way_to": waiting.token}
    write_new(workspace.unsent(given.token), to_json(content))
    assert tick(quiet_lab.context, start=False).resubmitted == 1
    assert [path.stem for path in workspace.local_queue().glob("queue/*")] == [waiting.token]
    quiet_lab.run(other).claim(1)
    assert tick(quiet_lab.context, start=False).resubmitted == 1
    assert not workspace.unsent(given.token).exists()


def forget_acceptance(lab: Lab) -> None:
    """Have the ledger not know whether the scheduler has any allocation."""
    with writing(lab.context.ledger.engine) as connection:
        connection.execute(update(m.allocations).values(job_id=None, launching_until=1.0))
        connection.execute(update(m.attempts).values(state="submitting"))

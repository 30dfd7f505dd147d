"""One pass over the workspace."""

import json
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from vtjobs.db import models as m
from vtjobs.db.engine import writing
from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Shape, read_allocation
from vtjobs.jobs.workspace.grid_settings import GridSettings
from vtjobs.jobs.workspace.journal import encode
from vtjobs.jobs.workspace.paths import WorkspaceUnreadable
from vtjobs.orchestrator.backends.base import JobView, Key, Place, Room
from vtjobs.orchestrator.backends.local.backend import LocalBackend
from vtjobs.orchestrator.loop.tick import cancel_places, settle, tick
from vtjobs.orchestrator.requests import actions

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab, SleepingBackend


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


class Clusters(SleepingBackend):
    """A scheduler with a cluster for each number of slots; some are away."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab.context.workspace)
        self.away: set[str] = set()
        self.asked: list[str] = []

    def cluster(self, site: Mapping[str, Any]) -> str:
        return str(site.get("slots"))

    def by_cluster(self, places: Sequence[Place]) -> dict[str, list[Place]]:
        found: dict[str, list[Place]] = defaultdict(list)
        for place in places:
            made = read_allocation(self.workspace.allocation(place.token))
            found[self.cluster(made.site if made else {})].append(place)
        return found

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        cluster = self.cluster(settings.site)
        self.ask(cluster)
        return changed(super().room(shape, settings), site={"slots": settings.site.get("slots")})

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        (cluster,) = self.by_cluster(places)
        self.ask(cluster)
        return super().observe(places)

    def cancel(self, places: Sequence[Place]) -> None:
        (cluster,) = self.by_cluster(places)
        self.ask(cluster)
        super().cancel(places)

    def ask(self, cluster: str) -> None:
        self.asked.append(cluster)
        if cluster in self.away:
            raise SchedulerUnreachable(f"cluster {cluster}: no answer")


@pytest.fixture
def clusters(quiet_lab: Lab) -> Clusters:
    made = Clusters(quiet_lab)
    quiet_lab.context._backends["local"] = made
    return made


def on_cluster(lab: Lab, cluster: int, *seeds: int) -> list[str]:
    """Submit a grid whose runs go to a cluster."""
    extra = f"backend: {{local: {{slots: {cluster}}}}}"
    return lab.submit(tiny_grid(name=f"on-{cluster}-{seeds[0]}", seeds=str([*seeds]), extra=extra))


def test_a_cluster_that_is_away_keeps_no_run_from_another_one(
    quiet_lab: Lab, clusters: Clusters
) -> None:
    clusters.away = {"1"}
    kept = [*on_cluster(quiet_lab, 1, 0), *on_cluster(quiet_lab, 1, 1)]
    (started,) = on_cluster(quiet_lab, 2, 2)
    report = tick(quiet_lab.context)
    assert [quiet_lab.state(run_id) for run_id in (*kept, started)] == [
        "pending",
        "pending",
        "queued",
    ]
    assert set(report.unreachable) == {"local at 1"}
    assert clusters.asked.count("1") == 1, "its second grid does not wait for it again"


def test_what_a_cluster_says_counts_though_another_one_is_away(
    quiet_lab: Lab, clusters: Clusters
) -> None:
    (mine,), (other,) = on_cluster(quiet_lab, 1, 0), on_cluster(quiet_lab, 2, 1)
    quiet_lab.tick()
    shutil.rmtree(quiet_lab.context.workspace.local_queue() / "queue")
    clusters.away = {"1"}
    report = tick(quiet_lab.context, start=False)
    assert [quiet_lab.attempts(run_id)[0].state for run_id in (mine, other)] == ["queued", "lost"]
    assert set(report.unreachable) == {"local at 1"}
    clusters.away = set()
    assert tick(quiet_lab.context, start=False).unreachable == {}


def test_a_cancel_reaches_a_cluster_though_another_one_is_away(
    quiet_lab: Lab, clusters: Clusters
) -> None:
    (mine,), (other,) = on_cluster(quiet_lab, 1, 0), on_cluster(quiet_lab, 2, 1)
    quiet_lab.tick()
    clusters.away = {"1"}
    with pytest.raises(SchedulerUnreachable, match="cluster 1"):
        actions.cancel(quiet_lab.context, [mine, other])
    left = [path.stem for path in quiet_lab.context.workspace.local_queue().glob("queue/*")]
    assert left == [token(quiet_lab, mine)]


def test_clusters_are_asked_at_once(quiet_lab: Lab, clusters: Clusters) -> None:
    for cluster in (1, 2):
        on_cluster(quiet_lab, cluster, cluster)
    quiet_lab.tick()
    meeting = threading.Barrier(2, timeout=60)

    def ask(cluster: str) -> None:
        meeting.wait()

    clusters.ask = ask  # type: ignore[method-assign]
    assert tick(quiet_lab.context, start=False).unreachable == {}


@pytest.mark.parametrize("order", [1, -1])
def test_an_agent_is_woken_though_another_run_of_its_place_has_not_begun(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    woken: list[Place] = []
    monkeypatch.setattr(LocalBackend, "nudge", lambda self, places: woken.extend(places))
    common = {
        "token": "vtj-1",
        "array_index": 0,
        "job_id": "1",
        "created_at": 0.0,
        "places": 1,
        "backend": "local",
        "number": 1,
        "heartbeat_at": None,
    }
    now = quiet_lab.context.clock()
    rows = [
        SimpleNamespace(run_id="begun", started_at=now, **common),
        SimpleNamespace(run_id="waits", started_at=None, **common),
    ][::order]
    cancel_places(quiet_lab.context, rows, rows)
    assert [place.is_started for place in woken] == [True]

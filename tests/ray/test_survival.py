"""Runs on a real Ray cluster outlive what happens to their processes, nodes and head, and lose at
most a checkpoint.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from vtjobs.jobs.config.config import load_config
from vtjobs.jobs.workspace.journal import LEASE_S
from vtjobs.jobs.workspace.lineage import candidates
from vtjobs.orchestrator.loop.context import open_context
from vtjobs.orchestrator.loop.tick import tick

from ..conftest import end_processes
from ..support import unattended
from ..support.cli import Cli
from ..support.grids import ENDLESS
from ..support.lab import children, parent_of, weights_of
from ..support.ray import RayCluster
from ..support.ray_user import finish, ray_grid, states, submit, wait_for
from ..support.site import OneRun, agents, attempts, family, gone, kill
from ..support.slurm import SlurmCluster

pytestmark = pytest.mark.xdist_group("ray")
# Long enough to be interrupted, and saved every second.
LONG = {"epochs": 50, "slow": True, "extra": "checkpoint_every: 1s"}


def saved_step(run: OneRun) -> int:
    """Return the step of the checkpoint that the second attempt has to go on from."""
    return candidates(run.folder, 2)[0].step


def interrupted(user: Cli) -> tuple[OneRun, int]:
    """Return a run that has saved something, and its agent."""
    (run,) = submit(user, ray_grid(**LONG))
    wait_for(lambda: run.events(1, "checkpoint"))
    (agent,) = agents(user)
    return run, agent


def test_a_run_goes_on_from_its_last_checkpoint_whichever_of_its_processes_is_killed(
    user: Cli,
) -> None:
    (run,) = submit(user, ray_grid(epochs=90, slow=True, extra="checkpoint_every: 1s"))
    saved = []
    for number in (1, 2, 3):
        wait_for(lambda number=number: run.events(number, "checkpoint"))
        (agent,) = agents(user)
        (template,) = children(agent)
        # A rank, the agent, and Ray's own process of the job.
        kill({1: children(template), 2: [agent], 3: [parent_of(agent)]}[number])
        if number == 1:
            # The agent lives, and tries the run again in place.
            wait_for(lambda: run.record(1).end)
        else:
            wait_for(lambda agent=agent, template=template: gone([agent, template]))
        saved.append(candidates(run.folder, number + 1)[0].step)
        wait_for(
            lambda number=number: (user.ok("supervise", "--once"), run.record(number + 1).start)[1]
        )
    found = finish(user, run)
    assert [(attempt["state"], attempt["failure"]) for attempt in found[:3]] == [
        ("failed", "crash"),
        ("lost", "agent_died"),
        ("lost", "agent_died"),
    ]
    assert "FAILED signal 9" in str(found[1]["signature"])
    assert [attempt["resumed_step"] for attempt in found[1:]] == saved
    assert [attempt["exact"] for attempt in found[1:]] == [True] * 3


@pytest.mark.long
def test_a_run_goes_on_elsewhere_when_its_node_dies(user: Cli, ray: RayCluster) -> None:
    runs = submit(user, ray_grid(seeds="2", **LONG))
    for run in runs:
        wait_for(lambda run=run: run.events(1, "checkpoint"))
    (agent,) = [agent for agent in agents(user) if node_of(agent, ray) == 1]
    (run,) = [run for run in runs if str(attempts(run.show())[0]["token"]) in words_of(agent)]
    ray.kill_node(1)
    first, second = finish(user, run)
    assert (first["state"], first["failure"]) == ("node_fail", "hardware")
    assert second["state"] == "completed" and second["resumed_step"]
    (other,) = [other for other in runs if other != run]
    assert [attempt["state"] for attempt in attempts(other.show())] == ["completed"]


def node_of(agent: int, ray: RayCluster) -> int:
    """Return the number of the node that an agent runs on."""
    above = [agent]
    while above[-1] > 1:
        above.append(parent_of(above[-1]))
    return next(number for number in (0, 1) if ray.daemons(number)[0] in above)


def test_after_a_restart_of_the_head_nothing_is_doubled_and_what_is_lost_goes_on(
    user: Cli, ray: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, agent = interrupted(user)
    ray.kill_head()
    done = wait_for(lambda: (found := user("status", "--json")).returncode == 5 and found)
    assert "unreachable since" in done.stderr and '"running": 1' in done.stdout
    wait_for(lambda: gone([agent]))
    ray.up()
    time.sleep(1.5)
    # It has forgotten the job. Whether the agent lives as an orphan is not known until its lease is
    # over.
    assert states(user) == {"running": 1}
    assert len(attempts(run.show())) == 1
    after_the_lease(user, monkeypatch)
    first, second = finish(user, run)
    assert (first["state"], first["failure"]) == ("lost", "agent_died")
    assert "unknown to Ray" in str(first["signature"])
    assert second["exact"] is True and second["resumed_step"] == saved_step(run)


def after_the_lease(user: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a pass that takes place when the lease of what lives now is over."""
    for name, value in user.environment().items():
        monkeypatch.setenv(name, value)
    context = open_context(
        load_config(folder=user.folder), clock=lambda: time.time() + LEASE_S + 60
    )
    tick(context, start=False)
    context.ledger.engine.dispose()


@pytest.mark.long
def test_an_orphan_of_a_head_that_is_gone_finishes_its_run_and_nothing_is_doubled(
    user: Cli, ray: RayCluster
) -> None:
    (run,) = submit(user, ray_grid(epochs=200, slow=True, extra="checkpoint_every: 1s"))
    wait_for(lambda: run.events(1, "checkpoint"))
    (agent,) = agents(user)
    orphan(agent, ray)
    ray.up()
    assert not gone([agent]), "it is no orphan"
    assert states(user) == {"running": 1}
    run.ends(1)
    (only,) = finish(user, run)
    assert only["state"] == "completed"


def orphan(agent: int, ray: RayCluster) -> None:
    """Have the head die without its agent, as versions of Ray do that do not end a job with its
    node.
    """
    supervisor = parent_of(agent)
    (watcher,) = [pid for pid in children(supervisor) if f"kill -9 -{agent}" in words_of(pid)]
    kill([watcher])
    # One that is stopped cannot end its children.
    kill([supervisor], signal.SIGSTOP)
    ray.kill_head()
    kill([supervisor])


def words_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")


@pytest.mark.long
def test_a_rank_that_runs_out_of_memory_is_told_as_such(user: Cli) -> None:
    # More than any machine has, asked for at once: the allocator refuses it.
    huge = ray_grid(extra="retries: 1").replace("embed_dim: 16", "embed_dim: 3000000")
    (run,) = submit(user, huge)
    end = run.ends(1)
    assert (end.state, end.failure) == ("out_of_memory", "out_of_memory"), end
    wait_for(lambda: states(user) == {"failed": 1})


@pytest.mark.long
def test_the_agent_keeps_the_walltime_and_hands_its_run_on_without_any_command(user: Cli) -> None:
    # On a machine with other work a rank takes half a minute to its first checkpoint.
    (run,) = submit(
        user, ray_grid(epochs=ENDLESS, resources="walltime: 60s", extra="checkpoint_every: 1s")
    )
    assert run.ends(1).state == "timeout"
    wait_for(lambda: run.record(2).start)
    first, second = attempts(run.show())[:2]
    assert (first["state"], second["resumed_step"]) == ("timeout", first["step"])
    user.ok("cancel", run.run_id)


def test_a_run_over_two_nodes_has_an_agent_on_each_and_leaves_nothing_when_it_is_cancelled(
    user: Cli, ray: RayCluster
) -> None:
    two = ray_grid(epochs=ENDLESS, resources="nodes: 2", train="virtual_ranks: 2, lr: 0.001")
    (run,) = submit(user, two)
    run.trains(1, epochs=2)
    found = agents(user)
    assert sorted(node_of(agent, ray) for agent in found) == [0, 1]
    processes = [each for agent in found for each in family(agent)]
    user.ok("cancel", run.run_id)
    wait_for(lambda: gone(processes))
    wait_for(lambda: states(user) == {"cancelled": 1})
    assert run.ends(1).state == "cancelled"


@pytest.mark.long
def test_nodes_that_are_added_later_take_what_waits(user: Cli, ray: RayCluster) -> None:
    (run,) = submit(
        user,
        ray_grid(
            resources="gpus_per_node: 2", train="virtual_ranks: 2, lr: 0.001", ray="autoscale: true"
        ),
    )
    assert states(user) == {"queued": 1}
    ray.up("--nodes=3", "--gpus=2", "--cpus=4")
    assert [attempt["state"] for attempt in finish(user, run)] == ["completed"]


@pytest.mark.long
@pytest.mark.parametrize("first, second", [("slurm", "ray"), ("ray", "slurm")])
def test_a_run_that_one_scheduler_stopped_goes_on_under_the_other_bit_for_bit(
    user: Cli, slurm: SlurmCluster, tmp_path: Path, cache: Path, first: str, second: str
) -> None:
    user.env |= {"SLURM_CONF": slurm.env["SLURM_CONF"], "VTJOBS_DEVICE": "cpu"}
    text = ray_grid(**LONG).replace("backend: {ray: {}}", "")
    straight = user_of_same(user, tmp_path / "other", cache)
    straight.ok("submit", straight.write("grid.yaml", text), "--backend", "ray")
    user.ok("submit", user.write("grid.yaml", text), "--backend", first)
    (run,) = [OneRun(user, found["run_id"]) for found in user.json("runs", "all")]
    wait_for(lambda: run.events(1, "checkpoint"))
    (agent,) = agents(user)
    os.kill(agent, signal.SIGTERM)
    wait_for(lambda: gone([agent]))
    user.ok("hold", "all")
    user.ok("submit", "grid.yaml", "--backend", second)
    user.ok("release", "all")
    done = user("submit", "grid.yaml", "--backend", second, "--wait", timeout=280)
    assert done.returncode == 0, done.stderr
    found = attempts(run.show())
    assert found[-1]["exact"] is True and found[-1]["resumed_step"] >= saved_step(run) > 0
    done = straight("submit", "grid.yaml", "--backend", "ray", "--wait", timeout=280)
    assert done.returncode == 0, done.stderr
    assert weights_of(user.workspace, run.run_id) == weights_of(straight.workspace, run.run_id)
    end_processes(straight.workspace)


def user_of_same(user: Cli, folder: Path, cache: Path) -> Cli:
    """Return another user, elsewhere, of the same clusters."""
    folder.mkdir()
    return Cli(folder, cache, dict(user.env))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_sixty_runs_with_faults_stages_and_a_back_off_end_by_themselves(user: Cli) -> None:
    # Other tests leave the cluster with more nodes than the two that it has at first.
    limit = "max_running: 2"
    unattended.submit(user, backend="{ray: {}}", resources="gpus_per_node: 1", more=limit)
    unattended.check(user, places=2)

"""The node agent as a process.

What it does with signals, walltimes, lanes and broken installations.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.workspace.allocation import Allocation
from vtjobs.jobs.workspace.journal import read_all
from vtjobs.orchestrator.requests import actions
from vtjobs.workers.agent.agent import Agent
from vtjobs.workers.agent.template_client import Forge

from ...support.grids import ENDLESS, tiny_grid
from ...support.lab import Lab, children, is_running, serve, templates, wait_for


def start(lab: Lab, allocation: Allocation, **environment: str) -> subprocess.Popen[bytes]:
    """Start the agent of an allocation, at the head of a process group as under SLURM."""
    command = [
        sys.executable,
        "-m",
        "vtjobs.workers.agent",
        "--workspace",
        str(lab.root),
        "--token",
        allocation.token,
    ]
    log = (lab.folder / "agent.log").open("ab")
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=log, start_new_session=True
    )


def descendants(pid: int) -> list[int]:
    """Return template, ranks and whatever they started."""
    found = children(pid)
    return found + [below for child in found for below in descendants(child)]


def is_training(lab: Lab, run_id: str, attempt: int = 1) -> bool:
    """Whether the attempt has finished an epoch."""
    return any(event["kind"] == "epoch" for event in read_all(lab.run(run_id).journal(attempt, 0)))


def test_a_term_to_every_process_of_the_step_stops_saves_and_costs_no_try(lab: Lab) -> None:
    runs = lab.submit(tiny_grid(seeds="3", epochs=ENDLESS, extra="retries: 1"))
    agent = start(lab, lab.allocate(runs, lanes=2, checkpoint_every_s=3600))
    wait_for(lambda: is_training(lab, runs[0]) and is_training(lab, runs[1]))
    everybody = [agent.pid, *descendants(agent.pid)]
    assert len(everybody) == 4, "agent, template, and two ranks at once"
    for pid in everybody:
        os.kill(pid, signal.SIGTERM)
    assert agent.wait(timeout=120) == 75
    assert not any(is_running(pid) for pid in everybody)
    for run_id in runs[:2]:
        end = lab.record(run_id, 1).end
        assert end is not None and (end.state, end.failure) == ("preempted", "stopped")
        assert lab.record(run_id, 1).announced == (end.step,)
    assert not [*lab.run(runs[2]).attempt(1).glob("journal-*")], "what had not begun was left alone"
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert [lab.state(run_id) for run_id in runs[:2]] == ["pending"] * 2


def test_nothing_is_started_or_made_while_the_workspace_is_away(
    quiet_lab: Lab, forge: Forge
) -> None:
    allocation = quiet_lab.allocate(quiet_lab.submit(tiny_grid(seeds="2")))
    workspace = quiet_lab.context.workspace
    agent = Agent(workspace, allocation, 0)
    away = workspace.root.with_name("away")
    workspace.root.rename(away)
    agent._fill(forge)
    assert not workspace.root.exists()
    away.rename(workspace.root)
    assert not agent.active and len(agent.waiting) == 2


def test_a_run_that_takes_seconds_tells_its_length_before_its_first_step_and_then_how_far_it_is(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=3))
    serve(forge, lab.host(lab.allocate([run_id]), forge))
    events = read_all(lab.run(run_id).journal(1, 0))
    steps = events[0]["steps"]
    assert (events[0]["kind"], steps) == (
        "start",
        RunSpec.parse(lab.run(run_id).spec.read_text()).steps,
    )
    first = next(event for event in events if event["kind"] == "progress")
    assert (first["step"], first["steps"], first["trained_s"]) == (0, steps, None)
    trained = [event["trained_s"] for event in events if event["kind"] == "epoch"]
    assert len(trained) == 3 and 0 < trained[0] < trained[1] < trained[2]


def queued(lab: Lab, run_ids: list[str], *, walltime_s: int) -> str:
    """Give runs to the local queue; return the allocation's token."""
    backend = lab.context.backend("local")
    command = (
        "-m",
        "vtjobs.orchestrator.backends.local.queue_process",
        "submit",
        "--workspace",
        str(lab.root),
    )
    argv = (sys.executable, *command, "--token", "{token}")
    allocation = lab.allocate(run_ids, walltime_s=walltime_s, checkpoint_every_s=3600, argv=argv)
    backend.submit(allocation)
    backend.wake()
    return allocation.token


@pytest.mark.long
def test_a_walltime_is_enforced_where_no_scheduler_does_it_and_the_queue_goes_on_by_itself(
    lab: Lab,
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=ENDLESS))
    # A slow machine needs some 10 s to import torch.
    token = queued(lab, [run_id], walltime_s=32)
    wait_for(lambda: lab.record(run_id, 2).start)
    end, start = lab.record(run_id, 1).end, lab.record(run_id, 2).start
    assert end is not None and (end.state, end.failure) == ("timeout", "walltime")
    assert start is not None and (start.resumed_attempt, start.resumed_step) == (
        1,
        end.step,
    )
    # The ledger finds the successor by its file, and then its journal.
    for _ in range(2):
        lab.tick(start=False)
    first, second = lab.attempts(run_id)
    assert first.token == token != second.token
    assert second.state == "running"


def test_what_is_handed_on_ends_with_the_weights_of_an_uninterrupted_run(
    lab: Lab, forge: Forge
) -> None:
    straight = Lab(lab.folder / "straight")
    straight.folder.mkdir()
    text = tiny_grid(seeds="2", epochs=60)
    runs = lab.submit(text)
    assert straight.submit(text) == runs
    token = queued(lab, runs, walltime_s=3600)
    wait_for(lambda: is_training(lab, runs[0]))
    # The walltime's signal; what comes after it needs no command of ours.
    lab.context.backend("local").queue.signal(token, signal.SIGUSR2)
    wait_for(lambda: all(finished_by(lab, run_id) for run_id in runs))
    assert [finished_by(lab, run_id) for run_id in runs] == [2, 2]
    allocation = straight.allocate(runs, lanes=2)
    serve(forge, *(straight.host(allocation, forge, position=index) for index in (0, 1)))
    assert [lab.weights(run_id) for run_id in runs] == [straight.weights(run_id) for run_id in runs]
    assert set(lab.finish().values()) == {"completed"}


def finished_by(lab: Lab, run_id: str) -> int | None:
    """Return the attempt that completed a run."""
    for number in lab.run(run_id).attempts():
        end = lab.record(run_id, number).end
        if end is not None and end.state == "completed":
            return number
    return None


@pytest.mark.paper("RV-21")
def test_a_later_stage_starts_from_its_parents_final_weights(lab: Lab) -> None:
    stages = """\
stages:
  - {name: pretrain, heads: [relvit]}
  - {name: finetune, heads: [supervised], train: {lr: 1e-30, weight_decay: 0.0}, init_from: pretrain}
"""
    parent, child = lab.submit(
        tiny_grid(seeds="1", extra=stages).replace("heads: [supervised]\n", "", 1)
    )
    agent = start(lab, lab.allocate([child, parent], lanes=1))
    assert agent.wait(timeout=120) == 0
    early = lab.record(child, 1).end
    assert early is not None and (early.state, early.failure) == ("superseded", "skipped")
    # It came too early; the agent takes it on once its parent has completed.
    late = lab.record(child, 2).end
    assert late is not None and late.state == "completed"
    # A learning rate of almost nothing leaves the weights where they began.
    assert lab.weights(child) == lab.weights(parent)


def test_a_killed_template_costs_its_runs_an_attempt_and_the_agent_goes_on_with_a_new_one(
    lab: Lab,
) -> None:
    runs = lab.submit(
        tiny_grid(seeds="1", epochs=ENDLESS, extra="retries: 1"),
    ) + lab.submit(tiny_grid(name="next", seeds="[5]"))
    agent = start(lab, lab.allocate(runs, lanes=1))
    wait_for(lambda: is_training(lab, runs[0]))
    (template,) = children(agent.pid)
    ranks = children(template)
    os.kill(template, signal.SIGKILL)
    assert agent.wait(timeout=120) == 0
    assert not any(is_running(pid) for pid in ranks)
    first, second = (lab.record(run_id, 1).end for run_id in runs)
    assert first is not None and (first.state, first.failure) == ("failed", "crash")
    assert second is not None and second.state == "completed"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_template_that_is_killed_while_it_starts_is_started_again_and_costs_its_runs_nothing(
    lab: Lab, number: signal.Signals
) -> None:
    runs = lab.submit(tiny_grid(seeds="2", epochs=2))
    agent = start(lab, lab.allocate(runs, lanes=2))
    (template,) = wait_for(lambda: templates(agent.pid))
    os.kill(template, number)
    assert agent.wait(timeout=120) == 0
    ends = [lab.record(run_id, 1).end for run_id in runs]
    assert [end and end.state for end in ends] == ["completed"] * 2


def test_an_import_error_on_the_node_is_a_set_up_error_of_every_run_and_is_not_retried(
    lab: Lab, tmp_path: Path
) -> None:
    broken = tmp_path / "broken" / "timm"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('timm is broken here')\n")
    runs = lab.submit(tiny_grid(seeds="3"))
    agent = start(lab, lab.allocate(runs, lanes=2), PYTHONPATH=str(broken.parent))
    assert agent.wait(timeout=120) == 0
    assert "timm is broken here" in (lab.folder / "agent.log").read_text()
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert set(lab.states().values()) == {"failed"}
    assert {attempt.failure for run_id in runs for attempt in lab.attempts(run_id)} == {
        "setup_error"
    }
    assert lab.attempts(runs[0])[0].exit_code == 71


def test_ranks_die_with_their_agent(lab: Lab) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=ENDLESS))
    agent = start(lab, lab.allocate([run_id]))
    wait_for(lambda: is_training(lab, run_id))
    below = descendants(agent.pid)
    assert len(below) == 2
    agent.kill()
    agent.wait()
    wait_for(lambda: not any(is_running(pid) for pid in below), 10)
    assert lab.record(run_id, 1).end is None


def test_a_cancelled_run_leaves_its_lane_to_the_next_one_at_once(lab: Lab) -> None:
    runs = lab.submit(tiny_grid(seeds="1", epochs=ENDLESS)) + lab.submit(
        tiny_grid(name="next", seeds="[5]")
    )
    agent = start(lab, lab.allocate(runs, lanes=1))
    wait_for(lambda: is_training(lab, runs[0]))
    actions.cancel(lab.context, runs[:1])
    assert agent.wait(timeout=120) == 0
    first, second = (lab.record(run_id, 1).end for run_id in runs)
    assert first is not None and first.state == "cancelled"
    assert second is not None and second.state == "completed"


def test_the_runs_of_a_lane_are_done_by_one_process(lab: Lab) -> None:
    runs = lab.submit(tiny_grid(seeds="3"))
    agent = start(lab, lab.allocate(runs, lanes=1))
    ranks: set[int] = set()

    def has_ended() -> bool:
        for template in templates(agent.pid):
            ranks.update(children(template))
        return agent.poll() is not None

    wait_for(has_ended)
    assert agent.returncode == 0 and len(ranks) == 1
    assert [lab.record(run_id, 1).end.state for run_id in runs] == ["completed"] * 3


def test_a_job_whose_only_run_is_cancelled_has_not_failed(lab: Lab) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=ENDLESS))
    agent = start(lab, lab.allocate([run_id], lanes=1))
    wait_for(lambda: is_training(lab, run_id))
    actions.cancel(lab.context, [run_id])
    assert agent.wait(timeout=120) == 0


@pytest.mark.parametrize(("what", "code"), [("token", 71), ("workspace", 5)])
def test_an_agent_without_its_allocation_or_workspace_says_so_and_changes_nothing(
    lab: Lab, what: str, code: int
) -> None:
    root = lab.context.workspace.root if what == "token" else lab.folder / "elsewhere"
    command = [
        sys.executable,
        "-m",
        "vtjobs.workers.agent",
        "--workspace",
        str(root),
        "--token",
        "vtj-0",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr and done.stderr.strip()
    assert not (lab.folder / "elsewhere").exists()


def test_the_exit_code_of_an_agent_of_one_run_is_that_runs(lab: Lab) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=20, train="lr: 1e30, clip_grad: null"))
    agent = start(lab, lab.allocate([run_id]))
    assert agent.wait(timeout=120) == 74
    assert read_json(lab.run(run_id).attempt(1) / "environment.json")["software"]["vtjobs"]


def test_an_allocation_that_shows_too_few_gpus_is_a_set_up_error_and_never_trains_on_the_cpu(
    lab: Lab,
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1"))
    allocation = lab.allocate([run_id], gpus=2, ranks=2)
    agent = start(lab, allocation, CUDA_VISIBLE_DEVICES="0")
    assert agent.wait(timeout=120) == 71
    end = lab.record(run_id, 1).end
    assert (
        end is not None
        and end.failure == "setup_error"
        and "each run needs 2 GPUs" in end.signature
    )

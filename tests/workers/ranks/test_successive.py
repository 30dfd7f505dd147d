"""A rank's process that does one run after another, and a run that cannot tell."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from vtjobs.jobs.run.states import AttemptState
from vtjobs.jobs.workspace.allocation import Shape
from vtjobs.workers.agent import lane_process
from vtjobs.workers.agent.attempt import HostedRun
from vtjobs.workers.agent.orders import reuse_of
from vtjobs.workers.agent.template_client import Forge, TemplateDied

from ...support.grids import ENDLESS, tiny_grid
from ...support.lab import Lab, a_template, is_running, serve, wait_for
from ...support.training import VIT, run_spec

COMPLETED = AttemptState.COMPLETED


@pytest.fixture
def own_forge(forge: Forge) -> Forge:
    """A template with no idle process that another test has left."""
    forge.end_resting()
    wait_for(lambda: (forge.hear(), not forge._processes)[1])
    return forge


def pid_of(hosted: HostedRun) -> int:
    (rank,) = hosted.ranks.processes
    assert rank.pid is not None
    return rank.pid


def until_idle(forge: Forge) -> None:
    """Wait until the only process waits for an order."""
    wait_for(lambda: (forge.hear(), forge._processes[0].is_idle)[1])


def in_turn(lab: Lab, forge: Forge, run_ids: list[str], **shape: Any) -> list[HostedRun]:
    """Host runs one after another in one lane."""
    allocation = lab.allocate(run_ids, **shape)
    hosted = []
    for position in range(len(run_ids)):
        hosted.append(lab.host(allocation, forge, position=position, lane=0))
        serve(forge, hosted[-1])
    return hosted


def test_the_next_run_of_a_lane_is_done_by_the_same_process(lab: Lab, own_forge: Forge) -> None:
    hosted = in_turn(lab, own_forge, lab.submit(tiny_grid(seeds="3")))
    assert [one.ended.state for one in hosted] == [COMPLETED] * 3
    assert len({pid_of(one) for one in hosted}) == 1


def test_each_run_has_a_log_and_a_journal_of_its_own(lab: Lab, own_forge: Forge) -> None:
    for one in in_turn(lab, own_forge, lab.submit(tiny_grid(seeds="2"))):
        folder = lab.run(one.task.run_id).logs(one.task.attempt)
        lines = (folder / "rank-0.log").read_text().splitlines()
        assert [line.split()[0] for line in lines if line.startswith(("start", "end"))] == [
            "start",
            "end",
        ]
        assert lab.record(one.task.run_id, 1).end.state == COMPLETED


def test_a_run_in_another_lane_has_another_process(lab: Lab, own_forge: Forge) -> None:
    allocation = lab.allocate(lab.submit(tiny_grid(seeds="2")), lanes=1)
    first = lab.host(allocation, own_forge, position=0, lane=0)
    serve(own_forge, first)
    second = lab.host(allocation, own_forge, position=1, lane=1)
    serve(own_forge, second)
    assert pid_of(first) != pid_of(second)


@pytest.mark.parametrize("train", ["precision: bf16", "deterministic: true"])
def test_a_run_that_computes_otherwise_waits_until_the_process_before_it_is_gone(
    lab: Lab, own_forge: Forge, train: str
) -> None:
    run_ids = lab.submit(tiny_grid(seeds="1")) + lab.submit(tiny_grid(seeds="1", train=train))
    first, second = in_turn(lab, own_forge, run_ids)
    assert second.ended.state == COMPLETED and pid_of(second) != pid_of(first)
    assert not is_running(pid_of(first))


def test_a_group_of_ranks_waits_until_the_process_before_it_is_gone(
    lab: Lab, own_forge: Forge
) -> None:
    (first,) = in_turn(lab, own_forge, lab.submit(tiny_grid(seeds="1")))
    run_ids = lab.submit(tiny_grid(seeds="1", train="virtual_ranks: 2"))
    (group,) = in_turn(lab, own_forge, run_ids, ranks=2)
    assert group.ended.state == COMPLETED
    assert pid_of(first) not in [rank.pid for rank in group.ranks.processes]


def test_a_process_that_diverged_does_no_other_run(lab: Lab, own_forge: Forge) -> None:
    wild = tiny_grid(seeds="1", epochs=20, train="lr: 1e30, clip_grad: null")
    first, second = in_turn(lab, own_forge, lab.submit(wild) + lab.submit(tiny_grid(seeds="1")))
    assert (first.ended.state, second.ended.state) == (AttemptState.FAILED, COMPLETED)
    assert pid_of(first) != pid_of(second)


def test_a_process_that_was_stopped_does_no_other_run(lab: Lab, own_forge: Forge) -> None:
    long = tiny_grid(seeds="1", epochs=ENDLESS)
    allocation = lab.allocate(lab.submit(long) + lab.submit(tiny_grid(seeds="1")))
    first = lab.host(allocation, own_forge, position=0, lane=0)
    serve(own_forge, first, until=lambda: first.position.get("step", 0) > 0)
    first.stop(AttemptState.CANCELLED)
    serve(own_forge, first)
    second = lab.host(allocation, own_forge, position=1, lane=0)
    serve(own_forge, second)
    assert second.ended.state == COMPLETED and pid_of(first) != pid_of(second)


def test_a_process_with_a_labs_own_code_does_no_other_run(lab: Lab, own_forge: Forge) -> None:
    loss = "def loss(scores, targets):\n    return -(targets * scores.log_softmax(1)).sum(1)\n"
    (lab.folder / "mine.py").write_text(loss)
    run_ids = lab.submit(tiny_grid(seeds="2", train='loss: "mine.py:loss"'))
    first, second = in_turn(lab, own_forge, run_ids)
    assert [first.ended.state, second.ended.state] == [COMPLETED] * 2
    assert pid_of(first) != pid_of(second)


def test_an_idle_process_that_dies_costs_the_next_run_nothing(lab: Lab, own_forge: Forge) -> None:
    allocation = lab.allocate(lab.submit(tiny_grid(seeds="3")))
    first = lab.host(allocation, own_forge, position=0, lane=0)
    serve(own_forge, first)
    os.kill(pid_of(first), signal.SIGKILL)
    # Once before the agent hears of it, and once after.
    second = lab.host(allocation, own_forge, position=1, lane=0)
    serve(own_forge, second)
    assert second.ended.state == COMPLETED
    os.kill(pid_of(second), signal.SIGKILL)
    wait_for(lambda: (own_forge.hear(), not is_running(pid_of(second)))[1])
    third = lab.host(allocation, own_forge, position=2, lane=0)
    serve(own_forge, third)
    assert third.ended.state == COMPLETED


def test_a_run_that_is_killed_before_it_is_taken_is_not_taken_for_the_next_one(
    lab: Lab, own_forge: Forge
) -> None:
    allocation = lab.allocate(lab.submit(tiny_grid(seeds="3")))
    first = lab.host(allocation, own_forge, position=0, lane=0)
    serve(own_forge, first)
    until_idle(own_forge)
    second = lab.host(allocation, own_forge, position=1, lane=0)
    second.ranks.kill()
    third = lab.host(allocation, own_forge, position=2, lane=0)
    serve(own_forge, second, third)
    assert (second.ended.state, third.ended.state) == (AttemptState.FAILED, COMPLETED)
    assert third.checkpoint_step > 0 and second.checkpoint_step == 0


def test_a_run_that_was_taken_is_not_ended_because_the_agent_listens_late(
    lab: Lab, own_forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocation = lab.allocate(lab.submit(tiny_grid(seeds="2")))
    serve(own_forge, lab.host(allocation, own_forge, position=0, lane=0))
    until_idle(own_forge)
    monkeypatch.setattr(lane_process, "STUCK_S", 0.5)
    second = lab.host(allocation, own_forge, position=1, lane=0)
    time.sleep(1.0)
    serve(own_forge, second)
    assert second.ended.state == COMPLETED


def test_a_crash_in_a_later_run_of_a_process_is_that_runs(lab: Lab, own_forge: Forge) -> None:
    long = tiny_grid(seeds="1", epochs=ENDLESS)
    allocation = lab.allocate(lab.submit(tiny_grid(seeds="1")) + lab.submit(long))
    first = lab.host(allocation, own_forge, position=0, lane=0)
    serve(own_forge, first)
    second = lab.host(allocation, own_forge, position=1, lane=0)
    serve(own_forge, second, until=lambda: second.position.get("step", 0) > 0)
    assert pid_of(second) == pid_of(first)
    os.kill(pid_of(second), signal.SIGSEGV)
    serve(own_forge, second)
    assert (first.ended.state, second.ended.state) == (COMPLETED, AttemptState.FAILED)
    assert second.ended.signature == "rank killed by SIGSEGV"


def test_a_stop_reaches_a_run_that_has_not_been_taken_yet(lab: Lab, own_forge: Forge) -> None:
    long = tiny_grid(seeds="1", epochs=ENDLESS)
    allocation = lab.allocate(lab.submit(tiny_grid(seeds="1")) + lab.submit(long))
    serve(own_forge, lab.host(allocation, own_forge, position=0, lane=0))
    until_idle(own_forge)
    second = lab.host(allocation, own_forge, position=1, lane=0)
    second.stop(AttemptState.PREEMPTED)
    serve(own_forge, second)
    assert second.ended.state == AttemptState.PREEMPTED


def test_with_the_template_an_idle_process_and_the_run_that_it_was_given_are_gone(
    lab: Lab,
) -> None:
    with a_template() as forge:
        allocation = lab.allocate(lab.submit(tiny_grid(seeds="2")))
        first = lab.host(allocation, forge, position=0, lane=0)
        serve(forge, first)
        until_idle(forge)
        os.kill(pid_of(first), signal.SIGSTOP)
        second = lab.host(allocation, forge, position=1, lane=0)
        os.kill(forge.process.pid, signal.SIGKILL)
        with pytest.raises(TemplateDied):
            serve(forge, second)
        second.template_died("killed")
    assert second.ended.state == AttemptState.FAILED
    wait_for(lambda: not is_running(pid_of(first)))


def test_an_idle_process_that_does_not_answer_is_replaced(
    lab: Lab, own_forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocation = lab.allocate(lab.submit(tiny_grid(seeds="2")))
    first = lab.host(allocation, own_forge, position=0, lane=0)
    serve(own_forge, first)
    until_idle(own_forge)
    os.kill(pid_of(first), signal.SIGSTOP)
    monkeypatch.setattr(lane_process, "STUCK_S", 0.5)
    second = lab.host(allocation, own_forge, position=1, lane=0)
    serve(own_forge, second)
    assert second.ended.state == COMPLETED and pid_of(second) != pid_of(first)


def test_a_process_is_ended_that_has_had_nothing_to_do_for_a_while(
    lab: Lab, own_forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = in_turn(lab, own_forge, lab.submit(tiny_grid(seeds="1")))
    until_idle(own_forge)
    assert is_running(pid_of(first))
    own_forge.dismiss()
    assert is_running(pid_of(first))
    monkeypatch.setattr(lane_process, "IDLE_S", 0.2)
    wait_for(lambda: (own_forge.dismiss(), not is_running(pid_of(first)))[1])


def test_nothing_idle_is_left_when_a_template_is_closed(lab: Lab) -> None:
    with a_template() as forge:
        (first,) = in_turn(lab, forge, lab.submit(tiny_grid(seeds="1")))
        assert is_running(pid_of(first))
    assert not is_running(pid_of(first))


def test_compiled_runs_share_a_process_within_their_cell_alone() -> None:
    shape = Shape(backend="local")
    cell = [run_spec(VIT, "drloc", seed=seed, compile=True) for seed in (0, 1)]
    assert reuse_of(cell[0], shape, 1) == reuse_of(cell[1], shape, 1)
    for other in (run_spec(VIT, "relvit", compile=True), run_spec(VIT, "drloc")):
        assert reuse_of(other, shape, 1) != reuse_of(cell[0], shape, 1)
    assert reuse_of(cell[0], shape, 2) != reuse_of(cell[0], shape, 1)


LEFT_BEHIND = {
    "nothing": "",
    "a thread": "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "a process": "multiprocessing.Process(target=time.sleep, args=(60,), daemon=True).start()",
    "weights": "kept = torch.nn.Linear(2, 2)",
}


@pytest.mark.parametrize("kind", LEFT_BEHIND)
def test_what_a_run_left_behind_ends_its_process(kind: str) -> None:
    code = (
        "import multiprocessing, os, threading, time, torch\n"
        "from vtjobs.workers.ranks.successive import is_as_new\n"
        f"{LEFT_BEHIND[kind]}\n"
        "print(is_as_new(), flush=True)\n"
        "for child in multiprocessing.active_children(): child.kill()\n"
        "os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout.split() == [str(kind == "nothing")]

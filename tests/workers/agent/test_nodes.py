"""One run on two nodes: two agents on this machine, with one rank each."""

import os
import signal
import subprocess

import pytest

from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.atomic_files import read_json

from ...support.grids import ENDLESS, tiny_grid
from ...support.lab import Lab, children, is_running, wait_for
from ...support.nodes import end_of, journal, on_two_nodes, start_agent, start_nodes


def two_ranks(*, seeds: str = "1", epochs: int = ENDLESS) -> str:
    return tiny_grid(seeds=seeds, epochs=epochs, train="virtual_ranks: 2")


def is_training(lab: Lab, run_id: str, attempt: int = 1) -> bool:
    return any(event["kind"] == "epoch" for event in journal(lab, run_id, attempt, 0))


def rank_of(agent: subprocess.Popen[bytes]) -> int:
    (template,) = children(agent.pid)
    (rank,) = children(template)
    return rank


def codes(agents: list[subprocess.Popen[bytes]], timeout: float = 60) -> list[int]:
    return [agent.wait(timeout=timeout) for agent in agents]


def test_two_nodes_stopped_and_resumed_give_the_weights_of_one_node_with_as_many_ranks(
    lab: Lab,
) -> None:
    single = Lab(lab.folder / "single")
    single.folder.mkdir()
    text = two_ranks(epochs=30)
    (run_id,) = lab.submit(text)
    assert single.submit(text) == [run_id]
    agents = start_nodes(lab, on_two_nodes(lab, [run_id], checkpoint_every_s=3600))
    wait_for(lambda: is_training(lab, run_id))
    for agent in agents:
        agent.send_signal(signal.SIGUSR2)
    assert codes(agents) == [75, 0]
    end = end_of(lab, run_id, 1, 0)
    assert end is not None and (end["state"], end["class"]) == ("timeout", "walltime")
    assert lab.record(run_id, 1).announced == (end["step"],)
    lab.tick(start=False)
    agents = start_nodes(lab, on_two_nodes(lab, [run_id]))
    straight = start_agent(single, single.allocate([run_id], ranks=2))
    assert codes(agents) == [0, 0] and straight.wait(timeout=120) == 0
    start = lab.record(run_id, 2).start
    assert start is not None and (start.resumed_attempt, start.exact) == (1, True)
    assert lab.weights(run_id) == single.weights(run_id)
    assert {path.name for path in lab.run(run_id).logs(2).iterdir()} == {"rank-0.log", "rank-1.log"}
    assert [event["kind"] for event in journal(lab, run_id, 2, 1)] == ["start", "end"]
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.state(run_id) == "completed"


def test_several_runs_pass_over_two_nodes_one_after_the_other(lab: Lab) -> None:
    runs = lab.submit(two_ranks(seeds="3", epochs=1))
    allocation = on_two_nodes(lab, runs, lanes=2)
    lab.run(runs[1]).cancel(1)
    agents = start_nodes(lab, allocation)
    assert codes(agents) == [0, 0]
    ends = [end_of(lab, run_id, 1, 0) for run_id in runs]
    assert [end and end["state"] for end in ends] == ["completed", "cancelled", "completed"]
    assert [end_of(lab, run_id, 1, 1) is not None for run_id in runs] == [True, False, True]


@pytest.mark.parametrize("node", [0, 1])
def test_a_killed_rank_ends_the_attempt_on_both_nodes_and_is_the_one_that_is_blamed(
    lab: Lab, node: int
) -> None:
    (run_id,) = lab.submit(two_ranks())
    agents = start_nodes(lab, on_two_nodes(lab, [run_id]))
    wait_for(lambda: is_training(lab, run_id))
    ranks = [rank_of(agent) for agent in agents]
    os.kill(ranks[node], signal.SIGKILL)
    wait_for(lambda: not any(is_running(pid) for pid in ranks), 10)
    assert codes(agents, timeout=20) == [78, 0]
    end = end_of(lab, run_id, 1, 0)
    assert end is not None and (end["state"], end["class"], end["rank"]) == (
        "failed",
        "crash",
        node,
    )
    assert end["signature"] == "rank killed by SIGKILL"
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.attempts(run_id)[0].failure == "crash"


def test_a_killed_agent_of_another_node_ends_the_attempt_and_its_node_is_named(lab: Lab) -> None:
    runs = lab.submit(two_ranks(seeds="2"))
    first, second = start_nodes(lab, on_two_nodes(lab, runs), VTJOBS_HOST="127.0.0.1")
    wait_for(lambda: is_training(lab, runs[0]))
    ranks = [rank_of(agent) for agent in (first, second)]
    second.kill()
    second.wait()
    wait_for(lambda: not any(is_running(pid) for pid in ranks), 10)
    assert first.wait(timeout=120) == 75
    end, host = end_of(lab, runs[0], 1, 0), journal(lab, runs[0], 1, 1)[0]["host"]
    assert end is not None and (end["class"], end["host"]) == ("communication", host)
    assert end["signature"].startswith("node 1 disappeared")
    assert lab.run(runs[1]).highest_claim() == 0, (
        "a run that cannot have all its nodes is not started"
    )


def test_when_the_agent_that_decides_is_killed_the_others_follow_and_nothing_is_adopted_from_them(
    lab: Lab,
) -> None:
    (run_id,) = lab.submit(two_ranks())
    first, second = start_nodes(lab, on_two_nodes(lab, [run_id]))
    wait_for(lambda: is_training(lab, run_id))
    ranks = [rank_of(agent) for agent in (first, second)]
    first.kill()
    first.wait()
    wait_for(lambda: not any(is_running(pid) for pid in ranks), 10)
    assert second.wait(timeout=120) == 0
    assert end_of(lab, run_id, 1, 1) is not None
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.attempts(run_id)[0].state == "running", (
        "only node 0's word, or the scheduler's, ends it"
    )


def test_a_signal_to_one_node_alone_stops_all(lab: Lab) -> None:
    runs = lab.submit(two_ranks(seeds="2"))
    agents = start_nodes(lab, on_two_nodes(lab, runs, checkpoint_every_s=3600))
    wait_for(lambda: is_training(lab, runs[0]))
    agents[1].send_signal(signal.SIGUSR2)
    assert codes(agents, timeout=30) == [75, 0]
    end = end_of(lab, runs[0], 1, 0)
    assert end is not None and (end["state"], end["class"]) == ("timeout", "walltime")
    assert lab.run(runs[1]).highest_claim() == 0


def test_a_node_with_a_broken_installation_is_the_cause_of_the_end_on_both(lab: Lab) -> None:
    broken = lab.folder / "broken" / "timm"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('timm is broken here')\n")
    (run_id,) = lab.submit(two_ranks())
    allocation = on_two_nodes(lab, [run_id])
    agents = [
        start_agent(lab, allocation, "--node", "0"),
        start_agent(lab, allocation, "--node", "1", PYTHONPATH=str(broken.parent)),
    ]
    assert codes(agents) == [71, 0]
    end = end_of(lab, run_id, 1, 0)
    assert end is not None and end["class"] == "setup_error"
    assert "the fork server could not start (ImportError: timm is broken here)" in end["signature"]


def test_a_zombie_on_two_nodes_fences_itself(lab: Lab) -> None:
    (run_id,) = lab.submit(two_ranks())
    agents = start_nodes(lab, on_two_nodes(lab, [run_id], checkpoint_every_s=3600))
    wait_for(lambda: is_training(lab, run_id))
    ranks = [rank_of(agent) for agent in agents]
    assert lab.run(run_id).claim(2)
    wait_for(lambda: not any(is_running(pid) for pid in ranks), 10)
    assert codes(agents, timeout=20) == [79, 0]
    end = end_of(lab, run_id, 1, 0)
    assert end is not None and end["state"] == "superseded"


def test_another_node_waits_for_its_orders_and_goes_when_none_come(lab: Lab) -> None:
    (run_id,) = lab.submit(two_ranks())
    allocation = on_two_nodes(lab, [run_id], hang_s=1.0)
    assert start_agent(lab, allocation, "--node", "1").wait(timeout=120) == 0
    assert not [*lab.run(run_id).attempt(1).glob("journal-*")]
    assert lab.run(run_id).highest_claim() == 0


def test_node_0_names_the_hosts_in_its_order(lab: Lab) -> None:
    (run_id,) = lab.submit(two_ranks(epochs=1))
    agents = start_nodes(lab, on_two_nodes(lab, [run_id]))
    assert codes(agents) == [0, 0]
    path = lab.run(run_id).order(1)
    assert read_json(path)["hosts"]

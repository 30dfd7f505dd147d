"""Which allocations on Ray wait for what an agent has."""

import pytest

from vtjobs.jobs.atomic_files import to_json, write_new, write_over
from vtjobs.jobs.config.node import Queued
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.ray.api import Api
from vtjobs.orchestrator.backends.ray.cluster import Need, Node
from vtjobs.orchestrator.backends.ray.turns import Part, part_of, queue, would_help

from .conftest import Head

ONE, TWO = Need(gpus=1, cpus=4), Need(gpus=2, cpus=8)


def part(name: str, *ours: Need, foreign_gpus: int = 0) -> Part:
    """Return a node of two GPUs with what our agents, and others, have there."""
    node = Node(node_id=name, host=name, resources={"GPU": 2.0, "CPU": 8.0})
    gpus = foreign_gpus + sum(need.gpus for need in ours)
    cpus = 4 * foreign_gpus + sum(need.cpus for need in ours)
    return part_of(node, {"GPU": float(gpus), "CPU": float(cpus)}, list(ours))


def test_every_agent_of_a_node_has_what_a_run_of_the_whole_node_lacks() -> None:
    assert would_help(ONE, "a", TWO, 1, [part("a", ONE, ONE)])
    assert would_help(ONE, "a", TWO, 1, [part("a", ONE)]), "the other one has gone already"


def test_one_node_after_the_other_is_left() -> None:
    present = [part("a", ONE, ONE), part("b", ONE, ONE)]
    assert [would_help(ONE, name, TWO, 1, present) for name in "ab"] == [True, False]
    present = [part("a", ONE, ONE), part("b", ONE)]
    assert [would_help(ONE, name, TWO, 1, present) for name in "ab"] == [False, True]


def test_a_run_of_several_nodes_lacks_as_many() -> None:
    present = [part(name, ONE, ONE) for name in "abc"]
    assert [would_help(ONE, name, ONE, 2, present) for name in "abc"] == [True, True, False]


def test_what_is_free_already_is_not_waited_for() -> None:
    assert not would_help(ONE, "a", ONE, 1, [part("a", ONE)])


def test_a_node_where_somebody_else_works_is_not_cleared_in_vain() -> None:
    shared, own = part("a", ONE, foreign_gpus=1), part("b", ONE, ONE)
    assert [would_help(ONE, name, TWO, 1, [shared, own]) for name in "ab"] == [False, True]


def test_an_agent_without_gpus_does_not_give_way_where_gpus_are_lacking() -> None:
    cores = Need(gpus=0, cpus=1)
    present = [part("a", cores, ONE, Need(gpus=1, cpus=2))]
    assert not would_help(cores, "a", Need(gpus=1, cpus=0), 1, present)
    assert would_help(cores, "a", Need(gpus=0, cpus=2), 1, present)


def test_what_no_node_has_is_not_waited_for_by_giving_way() -> None:
    assert not would_help(ONE, "a", Need(gpus=8, cpus=1), 1, [part("a", ONE, ONE)])


@pytest.mark.parametrize("key", ["node-1", "10.0.0.1"])
def test_a_job_that_waits_is_seen_by_who_has_what_it_lacks(
    head: Head, quiet_workspace: Workspace, key: str
) -> None:
    mine, other = (allocation(quiet_workspace, head, number) for number in (1, 2))
    quiet_workspace.run(mine.all_tasks[0].run_id).claim(1)
    resources = {"GPU": 2.0, "CPU": 8.0}
    row = {"node_id": "node-1", "node_ip": "10.0.0.1", "state": "ALIVE"}
    rows = [{**row, "resources_total": resources}]
    head.answers |= {
        "/api/jobs/": [
            {"submission_id": mine.token, "status": "RUNNING", "driver_node_id": "node-1"},
            {"submission_id": other.token, "status": "PENDING", "driver_node_id": None},
            {"submission_id": "somebody", "status": "RUNNING", "driver_node_id": "node-1"},
        ],
        "/api/v0/nodes": {"data": {"result": {"result": rows}}},
    }
    used = {name: [amount, amount] for name, amount in resources.items()}
    report = {"loadMetricsReport": {"usageByNode": {key: used}}}
    head.answers["/api/cluster_status"] = {"data": {"clusterStatus": report}}
    found = queue(Api(head.address), quiet_workspace, mine.token, deadline_s=10)
    assert found == [Queued(token=mine.token, waits=False), Queued(token=other.token, waits=True)]
    # A node where somebody else has half is no use to a run of the whole.
    head.answers["/api/cluster_status"] = {"data": {}}
    path = quiet_workspace.allocation(other.token)
    write_over(path, to_json(changed(other, site={**other.site, "gpus": 2}).to_dict()))
    assert len(queue(Api(head.address), quiet_workspace, mine.token, deadline_s=10)) == 2
    head.answers["/api/cluster_status"] = {"data": {"clusterStatus": report}}
    assert len(queue(Api(head.address), quiet_workspace, mine.token, deadline_s=10)) == 1


def allocation(workspace: Workspace, head: Head, number: int) -> Allocation:
    """Write down an allocation of one run on one GPU."""
    task = Task(run_id=f"{number:016x}", attempt=1, grid_id=f"g-{number}")
    site = {"address": head.address, "insecure": False, "gpus": 1, "cpus": 4, "custom": {}}
    made = Allocation(
        token=f"vtj-{number}", created_at=1.0, shape=Shape(backend="ray", gpus=1), lanes=1, tasks=((task,),),
        data_root="/none", site=site,
    )  # fmt: skip
    write_new(workspace.allocation(made.token), to_json(made.to_dict()))
    return made

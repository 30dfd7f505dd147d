"""Which allocations on Ray wait for what an agent has."""

from vtjobs.orchestrator.backends.ray.cluster import Need, Node
from vtjobs.orchestrator.backends.ray.turns import Part, part_of, would_help

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

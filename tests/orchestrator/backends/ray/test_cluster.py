"""What fits a Ray cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.workspace.allocation import Shape
from vtjobs.orchestrator.backends.ray.cluster import Need, Node, check, need_of, places_at_a_time


def node(name: str = "a", *, gpus: int = 8, cpus: int = 64, **more: float) -> Node:
    return Node(node_id=name, host=name, resources={"GPU": float(gpus), "CPU": float(cpus), **more})


def shape(*, gpus: int = 1, nodes: int = 1, gpu: str | None = None, threads: int = 1) -> Shape:
    return Shape(backend="ray", nodes=nodes, ranks=gpus or 1, gpus=gpus, gpu=gpu, threads=threads)


def refusal(*present: Node, asked: Shape, **site: object) -> tuple[str, str]:
    need = need_of(asked, 1, site, present)
    with pytest.raises(BadInput) as caught:
        check(need, asked, list(present))
    (problem,) = caught.value.problems
    return problem.key, problem.message


def test_a_gpu_comes_with_its_share_of_the_cores() -> None:
    assert need_of(shape(gpus=2), 1, {}, [node()]).cpus == 16
    assert need_of(shape(gpus=2), 1, {"cpus_per_gpu": 4}, [node()]).cpus == 8
    assert need_of(shape(gpus=2, threads=12), 1, {}, [node()]).cpus == 24


def test_runs_that_share_a_gpu_take_one_gpu_for_as_many_as_share_it() -> None:
    shared = Shape(backend="ray", gpus=1, per_gpu=2)
    assert [need_of(shared, lanes, {}, [node()]).gpus for lanes in (1, 2, 3, 4)] == [1, 1, 2, 2]


def test_a_run_without_gpus_takes_a_core_for_each_thread() -> None:
    assert need_of(Shape(backend="ray", ranks=2, threads=3), 1, {}, [node()]).cpus == 6


def test_a_cluster_has_as_many_places_as_fit_its_nodes() -> None:
    need = need_of(shape(gpus=4), 1, {}, [node(), node("b")])
    assert places_at_a_time(need, 1, [node(), node("b"), node("c", gpus=0)]) == 4


def test_several_nodes_must_be_different_ones() -> None:
    need = Need(gpus=4, cpus=1)
    assert places_at_a_time(need, 2, [node()]) == 0
    assert places_at_a_time(need, 2, [node(), node("b")]) == 2
    assert places_at_a_time(need, 2, [node(), node("b"), node("c")]) == 3


@given(st.lists(st.integers(0, 8), max_size=5), st.integers(1, 4))
def test_no_node_hosts_more_agents_of_all_places_than_fit_it(
    gpus: list[int], nodes_each: int
) -> None:
    present = [node(str(index), gpus=count) for index, count in enumerate(gpus)]
    need = Need(gpus=1, cpus=0)
    count = places_at_a_time(need, nodes_each, present)
    # Greedy: the roomiest nodes first never does worse.
    left = list(gpus)
    for _ in range(count):
        left.sort(reverse=True)
        assert len(left) >= nodes_each and left[nodes_each - 1] > 0
        left = [one - (index < nodes_each) for index, one in enumerate(left)]
    left.sort(reverse=True)
    assert len(left) < nodes_each or left[nodes_each - 1] == 0


def test_a_refusal_names_what_is_too_much_and_what_there_is() -> None:
    key, message = refusal(node(gpus=4), asked=shape(gpus=8))
    assert key == "gpus_per_node" and "the largest node of this cluster has 4 GPUs" in message
    assert refusal(node(), asked=shape(nodes=2))[0] == "nodes"
    assert refusal(node(**{"accelerator_type:V100": 1.0}), asked=shape(gpu="a100")) == (
        "gpu",
        "this cluster has no a100",
    )
    assert refusal(node(), asked=shape(), resources={"rare": 1.0}) == (
        "resources",
        "no node has the resource 'rare'",
    )
    assert refusal(node(gpus=0, cpus=2), asked=shape(gpus=0, threads=4))[0] == "threads"
    assert refusal(asked=shape())[1] == "this cluster has no nodes"


def test_a_kind_of_gpu_is_asked_for_by_rays_name() -> None:
    kind = node(**{"accelerator_type:V100": 1.0})
    need = need_of(shape(gpu="v100"), 1, {}, [kind])
    check(need, shape(gpu="v100"), [kind])
    assert need.as_resources() == {"accelerator_type:V100": 0.001}
    mixed = node(**{"accelerator_type:AMD-Instinct-MI210": 1.0})
    assert need_of(shape(gpu="amd-instinct-mi210"), 1, {}, [mixed]).as_resources() == {
        "accelerator_type:AMD-Instinct-MI210": 0.001
    }

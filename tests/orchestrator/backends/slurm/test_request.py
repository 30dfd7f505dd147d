"""What one job asks for, judged by the nodes that can serve it."""

from collections.abc import Mapping
from typing import Any

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.workspace.allocation import Shape
from vtjobs.orchestrator.backends.slurm.partitions import Nodes, Partition
from vtjobs.orchestrator.backends.slurm.request import Request, default_gpus, request

V100 = Nodes(
    count=4,
    cpus=64,
    memory_mb=256_000,
    gpus={"v100": 8},
    features=frozenset(("v100", "old")),
)
A100 = Nodes(count=2, cpus=64, memory_mb=512_000, gpus={"a100": 4}, features=frozenset(("a100",)))
CPU = Nodes(count=1, cpus=128, memory_mb=1_024_000)


def shape(**fields: Any) -> Shape:
    gpus = fields.get("gpus", 0)
    return Shape(**{"backend": "slurm", "ranks": gpus or 1, **fields})


def part(*nodes: Nodes, **fields: Any) -> Partition:
    plain = {"name": "gpu", "nodes": list(nodes or (V100,)), "limit_s": 86400}
    return Partition(**{**plain, **fields})


def asked_for(
    shape: Shape,
    *parts: Partition,
    pack: int | str = "auto",
    gives_memory: bool = True,
    **site: Any,
) -> Request:
    return request(shape, site, pack, parts, gives_memory=gives_memory)


# What can never run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "offered", "says"),
    [
        ({"gpus": 9}, {}, "gpus_per_node: 9 requested, a node of partition gpu has 8"),
        ({"nodes": 5}, {}, "nodes: 5 requested, partition gpu has 4"),
        ({"gpus": 1, "gpu": "v10"}, {}, r"gpu: partition gpu has no v10\. Did you mean 'v100'\?"),
        (
            {"walltime_s": 86401},
            {},
            r"walltime: .* exceeds the .* of partition gpu\. SLURM would never start it",
        ),
        ({}, {"is_up": False}, "partition: partition gpu is down"),
    ],
)
def test_what_would_wait_for_ever_is_refused(
    asked: dict[str, Any], offered: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        asked_for(shape(**asked), part(**offered))


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ({"gpus": 8, "nodes": 4, "gpu": "v100", "walltime_s": 86400}, {}),
        ({"gpus": 1, "gpu": "v100"}, {"nodes": [Nodes(count=1, cpus=8, gpus={"": 1})]}),
        ({"walltime_s": 10**7}, {"limit_s": None}),
        ({"walltime_s": None}, {}),
    ],
)
def test_what_fits_is_let_through(asked: dict[str, Any], offered: dict[str, Any]) -> None:
    asked_for(shape(**asked), part(**offered))


# Sharing a node -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "pack", "whole", "lanes"),
    [
        ({"gpus": 2}, "auto", True, 4),
        ({"gpus": 3}, "auto", True, 2),
        ({"gpus": 8}, "auto", True, 1),
        ({"gpus": 2}, "auto", False, 1),
        ({"gpus": 2}, "none", True, 1),
        ({"gpus": 2}, 3, False, 3),
        ({"gpus": 2, "nodes": 2}, "auto", True, 1),
        ({}, "auto", True, 1),
        ({}, 6, False, 6),
        ({"gpus": 1, "per_gpu": 3}, "auto", True, 24),
        ({"gpus": 1, "per_gpu": 3}, "auto", False, 3),
        ({"gpus": 1, "per_gpu": 3}, "none", True, 3),
        ({"gpus": 1, "per_gpu": 3}, 4, False, 4),
    ],
)
def test_runs_share_a_node_where_it_is_given_out_whole_or_the_grid_says_so(
    asked: dict[str, Any], pack: str | int, whole: bool, lanes: int
) -> None:
    assert asked_for(shape(**asked), part(is_exclusive=whole), pack=pack).lanes == lanes


def test_more_runs_than_fit_a_node_are_refused() -> None:
    with pytest.raises(BadInput, match="pack: 5 runs of 2 GPUs do not fit on a node with 8"):
        asked_for(shape(gpus=2), part(is_exclusive=True), pack=5)


def test_more_runs_than_may_share_the_gpus_of_a_node_are_refused() -> None:
    with pytest.raises(BadInput, match="pack: 17 runs of 1/2 GPU do not fit on a node with 8"):
        asked_for(shape(gpus=1, per_gpu=2), part(), pack=17)


@pytest.mark.parametrize(("pack", "is_exclusive"), [("auto", False), (2, False), (3, True)])
def test_runs_that_share_one_gpu_leave_the_rest_of_the_node_to_others(
    pack: str | int, is_exclusive: bool
) -> None:
    found = asked_for(shape(gpus=1, per_gpu=2), part(), pack=pack)
    assert found.is_exclusive is is_exclusive


@pytest.mark.parametrize(
    ("asked", "site", "lanes", "cpus"),
    [
        ({"gpus": 2}, {}, 1, 16),
        ({"gpus": 2}, {}, 4, 64),
        ({"gpus": 1, "per_gpu": 2}, {}, 3, 16),
        ({"gpus": 1, "per_gpu": 2, "threads": 6}, {}, 3, 18),
        ({"gpus": 2}, {"cpus_per_gpu": 3}, 1, 6),
        ({"gpus": 2, "threads": 12}, {"cpus_per_gpu": 3}, 1, 24),
        ({"gpus": 8}, {"cpus_per_gpu": 100}, 1, 64),
        ({"ranks": 4, "threads": 2}, {}, 1, 8),
        ({"ranks": 4, "threads": 2}, {}, 3, 24),
        ({"ranks": 64, "threads": 8}, {}, 1, 64),
    ],
)
def test_a_run_gets_its_gpus_share_of_the_cores_and_no_more_than_there_are(
    asked: dict[str, Any], site: Mapping[str, Any], lanes: int, cpus: int
) -> None:
    pack: int | str = lanes if lanes > 1 else "none"
    assert asked_for(shape(**asked), part(), pack=pack, **site).cpus == cpus


# Nodes that differ --------------------------------------------------------------------------------


def test_a_large_node_without_gpus_does_not_swell_the_share_of_cores() -> None:
    assert asked_for(shape(gpus=1), part(V100, A100, CPU)).cpus == 8


def test_the_share_is_that_of_the_type_of_gpu() -> None:
    mixed = part(V100, A100, CPU)
    assert asked_for(shape(gpus=1, gpu="a100"), mixed).cpus == 16
    assert asked_for(shape(gpus=1), mixed, constraint="a100").cpus == 16


def test_whole_cores_are_asked_for() -> None:
    # 12 cores of two threads: with a core and a half each, two of the eight GPUs are left over.
    nodes = Nodes(count=1, cpus=24, threads=2, gpus={"v100": 8})
    assert asked_for(shape(gpus=1), part(nodes)).cpus == 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"gpus": 8, "gpu": "a100"},
            "gpus_per_node: 8 requested, a node of partition gpu has 4 a100",
        ),
        (
            {"gpus": 8, "nodes": 5},
            "nodes: 5 requested, partition gpu has 4 with 8 GPUs",
        ),
        ({"gpus": 1, "gpu": "a100", "nodes": 3}, "partition gpu has 2 with 1 a100 GPUs"),
    ],
)
def test_the_nodes_of_the_type_are_counted(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        asked_for(shape(**asked), part(V100, A100, CPU))


def test_one_partition_of_a_list_that_can_serve_it_is_enough() -> None:
    cpu, a100 = part(CPU, name="cpu"), part(A100, name="a100")
    assert asked_for(shape(gpus=4, gpu="a100"), cpu, a100).cpus == 64
    with pytest.raises(BadInput, match=r"partition cpu has 0; 8 requested, .* a100 has 4"):
        asked_for(shape(gpus=8), cpu, a100)


def test_a_partition_that_is_down_or_too_short_leaves_the_others_of_the_list() -> None:
    shut, brief = part(CPU, name="shut", is_up=False), part(CPU, name="brief", limit_s=60)
    assert asked_for(shape(gpus=1, walltime_s=3600), shut, brief, part()).cpus == 8


def test_whole_nodes_that_differ_hold_as_many_runs_as_train_most_at_a_time() -> None:
    assert asked_for(shape(gpus=1), part(V100, A100, is_exclusive=True)).lanes == 8
    few = Nodes(count=1, cpus=64, gpus={"v100": 8})
    assert asked_for(shape(gpus=1), part(few, A100, is_exclusive=True)).lanes == 4


def test_a_constraint_that_no_node_fulfils_is_refused() -> None:
    with pytest.raises(BadInput, match="constraint: no node of partition gpu has h100"):
        asked_for(shape(gpus=1), part(), constraint="h100")


def test_gpus_that_slurm_does_not_report_are_those_of_the_settings() -> None:
    dark = part(Nodes(count=2, cpus=64))
    assert asked_for(shape(gpus=2), dark, node_gpus=8).cpus == 16


@pytest.mark.parametrize(
    ("kind", "ranks", "gpus"),
    [(None, 8, 4), ("v100", 8, 8), ("a100", 8, 4), ("a100", 3, 3), ("h100", 8, 0)],
)
def test_the_default_is_the_number_that_keeps_most_gpus_at_work(
    kind: str | None, ranks: int, gpus: int
) -> None:
    assert default_gpus({}, kind, ranks, [part(V100, A100, CPU)]) == gpus


def test_a_few_large_nodes_do_not_make_the_default() -> None:
    large = Nodes(count=1, cpus=64, gpus={"v100": 16})
    assert default_gpus({}, None, 16, [part(V100, large)]) == 8


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "nodes", "mem"),
    [
        ({"gpus": 1}, (V100,), "30400M"),
        ({"gpus": 4}, (V100,), "121600M"),
        ({"gpus": 1}, (V100, A100, CPU), "30400M"),
        ({"gpus": 1, "gpu": "a100"}, (V100, A100, CPU), "121600M"),
        ({"ranks": 16}, (CPU,), "121600M"),
        ({"gpus": 1}, (Nodes(count=1, cpus=8, gpus={"v100": 8}, memory_mb=1),), None),
    ],
)
def test_memory_is_asked_for_in_proportion_where_the_site_has_no_default(
    asked: dict[str, Any], nodes: tuple[Nodes, ...], mem: str | None
) -> None:
    assert asked_for(shape(**asked), part(*nodes), gives_memory=False).mem == mem


@pytest.mark.parametrize(
    ("site", "facts", "mem"),
    [
        ({"mem": "20G"}, {}, "20G"),
        ({"extra": {"mem-per-gpu": "8G"}}, {}, None),
        ({}, {"DefMemPerCPU": "1000"}, None),
        ({}, {"JobDefaults": "DefCpuPerGPU=4,DefMemPerGPU=8000"}, None),
        ({}, {"DefMemPerNode": "UNLIMITED", "MaxMemPerNode": "16000"}, "16000M"),
        ({}, {"MaxMemPerCPU": "2000"}, "16000M"),
        ({}, {"MaxMemPerNode": "UNLIMITED"}, "30400M"),
    ],
)
def test_what_the_site_says_of_memory_holds(
    site: dict[str, Any], facts: dict[str, str], mem: str | None
) -> None:
    found = asked_for(shape(gpus=1), part(facts=facts), gives_memory=False, **site)
    assert found.mem == mem


def test_a_node_of_its_own_comes_with_its_memory() -> None:
    assert asked_for(shape(gpus=1), part(is_exclusive=True), gives_memory=False).mem is None


@pytest.mark.parametrize(
    ("site", "gives", "gib"),
    [
        ({"mem": "20G"}, True, 20),
        ({"mem": "2048"}, True, 2),
        ({"mem": "1TB"}, True, 1024),
        ({}, True, None),
        ({}, False, 95),
    ],
)
def test_what_runs_share_of_a_nodes_memory_is_known_where_it_is_asked_for(
    site: dict[str, Any], gives: bool, gib: int | None
) -> None:
    nodes = Nodes(count=1, cpus=8, gpus={"v100": 8}, memory_mb=800 << 10)
    asked = asked_for(shape(gpus=1), part(nodes), gives_memory=gives, **site)
    assert asked.memory_bytes == (None if gib is None else gib << 30)


def test_runs_with_a_node_of_their_own_share_all_its_memory() -> None:
    nodes = Nodes(count=1, cpus=8, gpus={"v100": 8}, memory_mb=800 << 10)
    asked = asked_for(shape(gpus=1), part(nodes, is_exclusive=True))
    assert (asked.lanes, asked.memory_bytes) == (8, 800 << 30)

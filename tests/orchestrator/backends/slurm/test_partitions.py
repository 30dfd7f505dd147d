"""What sinfo and scontrol tell of a cluster's partitions and their nodes."""

import pytest

from vtjobs.orchestrator.backends.slurm.partitions import (
    Nodes,
    duration_s,
    gives_memory,
    partitions,
)

from ....support.scheduler import Commands

SINFO = """
gpu*|up|1-00:00:00|NO|12|64|2|250000|v100,nvlink|gpu:v100:8(S:0-1)
gpu*|up|1-00:00:00|NO|4|96+|1|500000+|a100|gpu:a100:4,gpu:v100:2
whole|up|infinite|EXCLUSIVE|3|32|1|0|(null)|gpu:8(S:0)
cpu|drain|30:00|NO|5|128|1|0|(null)|(null)
games|down|2:00:00|YES|1|16|1|0|(null)|gpu:3090:4,craynetwork:4
slices|up|infinite|NO|1|16|1|0|(null)|gpu:1g.5gb:7(S:0)
"""
FACTS = """
PartitionName=gpu AllowGroups=ALL GraceTime=0 DefMemPerCPU=1000 MaxMemPerNode=UNLIMITED
PartitionName=whole AllowAccounts=lab,theirs DefMemPerNode=UNLIMITED
PartitionName=hidden AllowGroups=staff
"""


@pytest.fixture(autouse=True)
def cluster(commands: Commands) -> None:
    commands.prints("sinfo", SINFO)
    commands.prints("scontrol", FACTS)


def test_a_partition_has_the_nodes_of_all_its_lines_by_kind() -> None:
    found = partitions(deadline_s=10)
    assert list(found) == ["gpu", "whole", "cpu", "games", "slices"]
    gpu = found["gpu"]
    assert (gpu.is_default, gpu.is_up, gpu.is_exclusive, gpu.limit_s) == (True, True, False, 86400)
    assert (gpu.count, gpu.kinds) == (16, {"v100", "a100"})
    first, second = gpu.nodes
    assert first == Nodes(
        count=12,
        cpus=64,
        threads=2,
        memory_mb=250_000,
        gpus={"v100": 8},
        features=frozenset(("v100", "nvlink")),
    )
    assert (second.cpus, second.gpus) == (96, {"a100": 4, "v100": 2})
    assert (second.all_gpus, second.gpus_of("v100"), second.gpus_of("h100")) == (6, 2, 0)


def test_a_partition_knows_what_the_controller_says_of_it() -> None:
    found = partitions(deadline_s=10)
    assert found["whole"].facts["AllowAccounts"] == "lab,theirs"
    assert found["gpu"].gives_memory
    assert not found["whole"].gives_memory, "UNLIMITED is all the memory of a node"
    assert found["cpu"].facts == {}


def test_whole_nodes_no_limit_and_no_kind_are_read() -> None:
    whole = partitions(deadline_s=10)["whole"]
    assert (whole.is_default, whole.is_exclusive, whole.limit_s) == (False, True, None)
    assert (whole.nodes[0].gpus, whole.kinds) == ({"": 8}, set())


def test_a_partition_without_gpus_that_takes_no_jobs() -> None:
    cpu = partitions(deadline_s=10)["cpu"]
    assert (cpu.nodes[0].gpus, cpu.is_up, cpu.limit_s) == ({}, False, 1800)


@pytest.mark.parametrize(("name", "kind", "count"), [("games", "3090", 4), ("slices", "1g.5gb", 7)])
def test_a_kind_of_gpu_may_begin_with_a_digit(name: str, kind: str, count: int) -> None:
    found = partitions(deadline_s=10)[name]
    assert found.nodes[0].gpus == {kind: count}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30:00", 1800),
        ("1:00:00", 3600),
        ("1-00:00:00", 86400),
        ("7-12:30:05", 649805),
        ("infinite", None),
        ("UNLIMITED", None),
        ("n/a", None),
        ("", None),
    ],
)
def test_a_time_limit_is_read_in_every_form(text: str, seconds: int | None) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("constraint", "has"),
    [
        (None, True),
        ("v100", True),
        ("a100", False),
        ("a100|v100", True),
        ("v100&nvlink", True),
        ("v100,ib", False),
        ("[rack1|rack2]", True),
        ("v100*2&ib*4", True),
    ],
)
def test_a_constraint_is_judged_where_it_is_names_alone(constraint: str | None, has: bool) -> None:
    nodes = Nodes(count=1, features=frozenset(("v100", "nvlink")))
    assert nodes.has(constraint) is has


@pytest.mark.parametrize(
    ("config", "given"),
    [
        ({"SelectTypeParameters": "CR_CPU_MEMORY", "DefMemPerCPU": "1000"}, True),
        ({"SelectTypeParameters": "CR_CORE_MEMORY", "DefMemPerNode": "UNLIMITED"}, False),
        ({"SelectTypeParameters": "CR_CORE_MEMORY", "JobDefaults": "DefMemPerGPU=8000"}, True),
        ({"SelectTypeParameters": "CR_CPU", "DefMemPerNode": "UNLIMITED"}, True),
    ],
)
def test_memory_is_given_by_a_default_or_is_nothing_that_is_given_out(
    config: dict[str, str], given: bool
) -> None:
    assert gives_memory(config) is given

"""What sinfo and scontrol tell of a cluster."""

import pytest

from vtjobs.orchestrator.backends.slurm import cluster
from vtjobs.orchestrator.backends.slurm.cluster import duration_s, partitions

from ....support.scheduler import Commands

SINFO = """
gpu*|up|1-00:00:00|NO|12|64|gpu:v100:8(S:0-1)
gpu*|up|1-00:00:00|NO|4|96+|gpu:a100:4,gpu:v100:2
whole|up|infinite|EXCLUSIVE|3|32|gpu:8(S:0)
cpu|drain|30:00|NO|5|128|(null)
games|down|2:00:00|YES|1|16|gpu:3090:4,craynetwork:4
slices|up|infinite|NO|1|16|gpu:1g.5gb:7(S:0)
"""
CONFIG = """
Configuration data as of 2026-11-21T13:41:55
AccountingStorageType   = accounting_storage/slurmdbd
MaxArraySize            = 1001
MaxJobCount             = 10000
SLURM_VERSION           = 22.05.8
SlurmctldParameters     = a=1,b=2
"""


def test_a_partition_is_the_sum_of_its_lines_and_its_largest_node_stands_for_all(
    commands: Commands,
) -> None:
    commands.prints("sinfo", SINFO)
    found = partitions(deadline_s=10)
    assert list(found) == ["gpu", "whole", "cpu", "games", "slices"]
    gpu = found["gpu"]
    assert (gpu.is_default, gpu.is_up, gpu.is_exclusive, gpu.limit_s) == (True, True, False, 86400)
    assert (gpu.nodes, gpu.gpus, gpu.cpus, gpu.kinds) == (16, 8, 96, {"v100", "a100"})


def test_whole_nodes_no_limit_and_no_kind_are_read(commands: Commands) -> None:
    commands.prints("sinfo", SINFO)
    whole = partitions(deadline_s=10)["whole"]
    assert (whole.is_default, whole.is_exclusive, whole.limit_s, whole.gpus, whole.kinds) == (
        False, True, None, 8, set(),
    )  # fmt: skip


def test_a_partition_without_gpus_that_takes_no_jobs(commands: Commands) -> None:
    commands.prints("sinfo", SINFO)
    cpu = partitions(deadline_s=10)["cpu"]
    assert (cpu.gpus, cpu.is_up, cpu.limit_s) == (0, False, 1800)


@pytest.mark.parametrize(("name", "kind", "count"), [("games", "3090", 4), ("slices", "1g.5gb", 7)])
def test_a_kind_of_gpu_may_begin_with_a_digit(
    commands: Commands, name: str, kind: str, count: int
) -> None:
    commands.prints("sinfo", SINFO)
    found = partitions(deadline_s=10)[name]
    assert (found.kinds, found.gpus) == ({kind}, count)


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


def test_the_controllers_settings_are_read_by_name(commands: Commands) -> None:
    commands.prints("scontrol", CONFIG)
    found = cluster.settings(deadline_s=10)
    assert found["MaxArraySize"] == "1001"
    assert found["SlurmctldParameters"] == "a=1,b=2"

"""What sinfo, scontrol and sacctmgr tell of a cluster."""

import time

import pytest

from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.orchestrator.backends.slurm import cluster
from vtjobs.orchestrator.backends.slurm.cluster import Limits, duration_s, limits, partitions

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


# Limits -------------------------------------------------------------------------------------------


def accounting(commands: Commands, associations: str, qos: str = "") -> None:
    """Make a sacctmgr that knows these associations and QOS."""
    commands.prints("scontrol", CONFIG)
    answers = {"*associations*": associations, "*": qos}
    cases = "".join(
        f"{pattern}) cat <<'END'\n{text}\nEND\n;;\n" for pattern, text in answers.items()
    )
    commands.answers("sacctmgr", f'case "$*" in\n{cases}esac')


def found(*, account: str | None = None, qos: str | None = None) -> Limits:
    return limits(account=account, qos=qos, deadline_s=10)


def test_without_limits_of_its_own_a_user_has_the_controllers(commands: Commands) -> None:
    accounting(commands, "lab|||normal|", "normal||")
    assert found() == Limits(array_size=1001, jobs=10000)


@pytest.mark.parametrize(
    ("associations", "jobs"),
    [
        ("lab|3||normal|", 3),
        ("lab||7|normal|", 7),
        ("lab|9|7|normal|", 7),
        ("a|5||normal|\nb|4||normal|", 4),
    ],
)
def test_the_smallest_limit_of_the_users_associations_holds(
    commands: Commands, associations: str, jobs: int
) -> None:
    accounting(commands, associations, "normal||")
    assert found().jobs == jobs


def test_a_chosen_account_has_its_own_limit_alone(commands: Commands) -> None:
    accounting(commands, "a|5||normal|\nb|4||normal|", "normal||")
    assert found(account="a").jobs == 5


def test_the_limit_of_the_qos_holds_that_jobs_get(commands: Commands) -> None:
    qos = "normal|50|\nhigh|2|\nlow||20"
    accounting(commands, "lab|||normal,high,low|low", qos)
    assert found().jobs == 20, "the default one"
    assert found(qos="high").jobs == 2, "the chosen one"
    accounting(commands, "only|||normal|", qos)
    assert found(account="only").jobs == 50, "the only one"


def test_a_cluster_without_accounting_has_the_controllers_limits(commands: Commands) -> None:
    commands.prints("scontrol", CONFIG)
    commands.fails("sacctmgr", "You are not running a supported accounting_storage plugin")
    assert found() == Limits(array_size=1001, jobs=10000)


def test_accounting_that_is_away_sets_no_limit(commands: Commands) -> None:
    commands.prints("scontrol", CONFIG)
    commands.fails(
        "sacctmgr", "sacctmgr: error: Problem talking to the database: Connection refused"
    )
    assert found().jobs == 10000


def test_a_controller_that_is_away_leaves_the_limits_unknown(commands: Commands) -> None:
    commands.fails(
        "scontrol",
        "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)",
    )
    with pytest.raises(SchedulerUnreachable):
        found()


def test_limits_are_asked_for_once_a_minute_and_per_account_and_qos(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounting(commands, "lab|3||normal|", "normal||")
    began = time.monotonic()
    assert [found().jobs, found().jobs] == [3, 3]
    assert len(commands.calls("scontrol")) == 1
    found(qos="high")
    assert len(commands.calls("scontrol")) == 2
    monkeypatch.setattr(cluster.time, "monotonic", lambda: began + cluster.FRESH_S + 60)
    accounting(commands, "lab|4||normal|", "normal||")
    assert found().jobs == 4


def test_an_array_has_no_more_elements_than_the_second_limit_allows(commands: Commands) -> None:
    commands.fails("sacctmgr", "You are not running a supported accounting_storage plugin")
    commands.prints("scontrol", CONFIG + "SchedulerParameters = bf_max=9,max_array_tasks=100\n")
    assert limits(account=None, qos=None, deadline_s=10).array_size == 100

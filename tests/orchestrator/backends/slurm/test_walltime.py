"""How long a job may take whose grid does not say, and how long it must take at least."""

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.workspace.allocation import Shape
from vtjobs.orchestrator.backends.slurm.partitions import Partition
from vtjobs.orchestrator.backends.slurm.walltime import check_walltime, default_walltime

from ....support.scheduler import Commands

PARTITIONS = {
    name: Partition(name=name, limit_s=limit_s, facts={"DefaultTime": default})
    for name, limit_s, default in (
        ("gpu", 86400, "01:00:00"),
        ("short", 600, "00:05:00"),
        ("long", 7 * 86400, "NONE"),
        ("endless", None, "NONE"),
    )
}


def asked(commands: Commands, *, associations: str = "", qos: str = "", **site: str) -> int | None:
    """Return the default where accounting has these lines."""
    lines = f'case "$3" in associations) echo "{associations}";; *) echo "{qos}";; esac'
    commands.answers("sacctmgr", lines)
    return default_walltime(site, [PARTITIONS["gpu"]], deadline_s=5)


@pytest.mark.parametrize(
    ("partition", "seconds"),
    [
        ("gpu", 3600),
        ("short", 300),
        ("gpu,short", 300),
        ("long", 7 * 86400),
        ("endless", None),
        ("endless,short", 300),
    ],
)
def test_the_shortest_default_of_the_partitions_counts(
    commands: Commands, partition: str, seconds: int | None
) -> None:
    commands.fails("sacctmgr", "You are not running a supported accounting_storage plugin")
    parts = [PARTITIONS[name] for name in partition.split(",")]
    assert default_walltime({}, parts, deadline_s=5) == seconds


@pytest.mark.parametrize(
    ("associations", "qos", "seconds"),
    [
        ("lab|00:30:00|normal", "normal|", 1800),
        ("lab||normal", "normal|00:20:00", 1200),
        ("lab||normal", "normal|2-00:00:00", 3600),
        ("lab||normal", "other|00:20:00", 3600),
    ],
)
def test_a_shorter_limit_of_the_account_or_its_qos_counts(
    commands: Commands, associations: str, qos: str, seconds: int
) -> None:
    assert asked(commands, associations=associations, qos=qos) == seconds


def test_the_limits_of_another_account_or_qos_count_for_nothing(commands: Commands) -> None:
    found = asked(
        commands, associations="lab|00:30:00|fast", qos="fast|00:20:00", account="a", qos_name=""
    )
    assert found == 3600


@pytest.mark.parametrize(("walltime_s", "lead_s"), [(120, 30), (180, 45), (600, 120), (None, 60)])
def test_a_walltime_that_leaves_time_to_save_is_taken(walltime_s: int | None, lead_s: int) -> None:
    check_walltime(Shape(backend="slurm", walltime_s=walltime_s, lead_s=lead_s))


@pytest.mark.parametrize(("walltime_s", "lead_s"), [(60, 15), (90, 22), (110, 27), (60, 5)])
def test_a_walltime_that_may_end_before_the_first_checkpoint_is_refused_with_the_one_it_takes(
    walltime_s: int, lead_s: int
) -> None:
    with pytest.raises(BadInput, match="before a run reaches its first checkpoint") as error:
        check_walltime(Shape(backend="slurm", walltime_s=walltime_s, lead_s=lead_s))
    (problem,) = error.value.problems
    assert (problem.key, problem.fix) == ("walltime", "Ask for 2m00s at least")

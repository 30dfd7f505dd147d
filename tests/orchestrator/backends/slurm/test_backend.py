"""How the SLURM backend places runs, and what it refuses before SLURM lets it wait for ever."""

from typing import Any

import pytest

from vtjobs.jobs.errors import BadInput, SchedulerUnreachable
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.grid_settings import GridSettings
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.base import Place
from vtjobs.orchestrator.backends.slurm.backend import SlurmBackend

from ....support.grid_settings import grid_settings
from ....support.scheduler import Commands

SINFO = """
gpu*|up|1-00:00:00|NO|4|64|1|0|(null)|gpu:v100:8
whole|up|infinite|EXCLUSIVE|2|64|1|0|(null)|gpu:a100:8
cpu|up|infinite|NO|9|128|1|0|(null)|(null)
closed|down|infinite|NO|9|128|1|0|(null)|(null)
"""


def shape(**fields: Any) -> Shape:
    gpus = fields.get("gpus", 0)
    return Shape(**{"backend": "slurm", "ranks": gpus or 1, **fields})


def settings(*, pack: str | int = "auto", virtual_ranks: int = 8, **site: Any) -> GridSettings:
    return grid_settings(site=site, resources={"pack": pack}, virtual_ranks=virtual_ranks)


@pytest.fixture
def slurm(commands: Commands, workspace: Workspace) -> SlurmBackend:
    """A cluster with room for 100 jobs of this user, of whom it has five places."""
    commands.prints("sinfo", SINFO)
    commands.prints("scontrol", "MaxArraySize = 1001\nMaxJobCount = 100")
    commands.prints(
        "squeue",
        "34|4-6%2|PENDING|Priority||N/A|N/A|vtj-1\n34|3|RUNNING|None|gpu0|N/A|N/A|vtj-1\n34|2|COMPLETING|None|gpu0|1|N/A|vtj-1\n"
        "34|1|COMPLETED|None|gpu0|1|N/A|vtj-1\n34|0|BOOT_FAIL|None|gpu0|1|N/A|vtj-1\n35|N/A|DEADLINE|None|gpu0|1|N/A|vtj-2",
    )
    return SlurmBackend(workspace)


# Room ---------------------------------------------------------------------------------------------


def test_a_place_is_one_run_and_an_array_as_long_as_the_site_allows(slurm: SlurmBackend) -> None:
    room = slurm.room(shape(gpus=2), settings())
    assert (room.lanes, room.tasks, room.places) == (1, 1, 1001)


def test_what_the_user_may_still_submit_is_the_limit_less_what_is_there(
    slurm: SlurmBackend,
) -> None:
    assert slurm.room(shape(), settings()).free == {"MaxJobCount": 95}


def test_a_user_over_the_limit_may_submit_nothing(slurm: SlurmBackend, commands: Commands) -> None:
    commands.prints("scontrol", "MaxArraySize = 1001\nMaxJobCount = 3")
    assert slurm.room(shape(), settings()).free == {"MaxJobCount": 0}


def test_whole_nodes_are_filled_and_asked_for_as_such(slurm: SlurmBackend) -> None:
    room = slurm.room(shape(gpus=2), settings(partition="whole"))
    assert (room.lanes, room.tasks, room.site["exclusive"]) == (4, 4, True)
    assert slurm.room(shape(gpus=2), settings()).site["exclusive"] is False


def test_runs_side_by_side_take_a_node_for_themselves(slurm: SlurmBackend) -> None:
    room = slurm.room(shape(gpus=2), settings(pack=3))
    assert (room.lanes, room.site["exclusive"], room.site["cpus"]) == (3, True, 48)


def test_the_sites_settings_are_kept_as_they_hold_and_those_that_say_nothing_are_not(
    slurm: SlurmBackend,
) -> None:
    given = settings(
        partition="gpu", account=None, modules=[], extra={}, handover=False, array_parallelism=5
    )
    room = slurm.room(shape(), given)
    assert room.site == {
        "partition": "gpu", "handover": False, "array_parallelism": 5, "cpus": 1, "exclusive": False,
    }  # fmt: skip


@pytest.mark.parametrize("names", ["whole,gpu", "gpu,whole"])
def test_whole_nodes_are_filled_wherever_they_stand_in_a_list_of_partitions(
    slurm: SlurmBackend, names: str
) -> None:
    assert slurm.room(shape(gpus=4), settings(partition=names)).lanes == 2


def test_every_partition_of_a_list_must_exist(slurm: SlurmBackend) -> None:
    with pytest.raises(BadInput, match="unknown partition 'wohle'"):
        slurm.room(shape(), settings(partition="gpu,wohle"))


def test_an_unknown_partition_is_refused_with_the_nearest(slurm: SlurmBackend) -> None:
    with pytest.raises(
        BadInput, match=r"partition: unknown partition 'gpuu'\. Did you mean 'gpu'\?"
    ):
        slurm.room(shape(), settings(partition="gpuu"))


def test_a_cluster_without_a_default_partition_needs_one_named(
    slurm: SlurmBackend, commands: Commands
) -> None:
    commands.prints("sinfo", SINFO.replace("gpu*", "gpu"))
    with pytest.raises(BadInput, match=r"no default partition\. Allowed: closed, cpu, gpu, whole"):
        slurm.room(shape(), settings())
    assert slurm.room(shape(), settings(partition="cpu")).lanes == 1


def test_a_controller_that_is_away_is_said_and_decides_nothing(
    slurm: SlurmBackend, commands: Commands
) -> None:
    commands.fails(
        "sinfo", "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    )
    with pytest.raises(SchedulerUnreachable, match="Unable to contact slurm controller"):
        slurm.room(shape(), settings())


def test_the_partitions_are_asked_for_once(slurm: SlurmBackend, commands: Commands) -> None:
    for _ in range(3):
        slurm.room(shape(), settings())
    assert len(commands.calls("sinfo")) == 1


@pytest.mark.parametrize(
    ("site", "virtual_ranks", "gpus"),
    [
        ({}, 8, 8),
        ({}, 4, 4),
        ({}, 6, 6),
        ({}, 7, 7),
        ({}, 9, 3),
        ({}, 1, 1),
        ({"node_gpus": 2}, 8, 2),
        ({"partition": "cpu"}, 8, 0),
    ],
)
def test_a_grid_that_names_no_gpus_gets_those_of_a_node_that_its_ranks_can_be_spread_over(
    slurm: SlurmBackend, site: dict[str, Any], virtual_ranks: int, gpus: int
) -> None:
    assert slurm.default_gpus(settings(virtual_ranks=virtual_ranks, **site)) == gpus


# Ending and waking --------------------------------------------------------------------------------

PLACES = [
    Place(token="vtj-1", index=3, job_id="34", is_array=True, is_started=True),
    Place(token="vtj-2", index=0, job_id="35"),
    Place(token="vtj-3", index=0),
]


QUEUED = "34|3|RUNNING|None|gpu0|N/A|N/A|vtj-1\n35|N/A|PENDING|None||N/A|N/A|vtj-2\n"


def test_a_cancel_names_elements_and_leaves_what_is_not_known_to_be_there(
    slurm: SlurmBackend, commands: Commands
) -> None:
    commands.prints("squeue", QUEUED)
    commands.prints("scancel", "")
    slurm.cancel(PLACES)
    assert commands.calls("scancel") == ["--quiet 34_3 35"]


def test_a_cancel_ends_both_jobs_that_two_submitters_made_of_one_allocation(
    slurm: SlurmBackend, commands: Commands
) -> None:
    commands.prints("squeue", QUEUED + "36|N/A|PENDING|None||N/A|N/A|vtj-2\n")
    commands.prints("scancel", "")
    slurm.cancel(PLACES)
    assert commands.calls("scancel") == ["--quiet 34_3 35 36"]


def test_a_job_that_has_the_id_of_ours_and_another_name_is_left_alone(
    slurm: SlurmBackend, commands: Commands
) -> None:
    commands.prints("squeue", QUEUED.replace("vtj-2", "somebody"))
    commands.prints("scancel", "")
    slurm.cancel(PLACES)
    assert commands.calls("scancel") == ["--quiet 34_3"]


def test_only_agents_that_have_started_are_woken(slurm: SlurmBackend, commands: Commands) -> None:
    commands.prints("squeue", QUEUED)
    commands.prints("scancel", "")
    slurm.nudge(PLACES)
    assert commands.calls("scancel") == ["--quiet --signal=USR1 34_3"]


def test_a_job_that_ends_before_it_is_woken_is_no_error(
    slurm: SlurmBackend, commands: Commands
) -> None:
    commands.prints("squeue", QUEUED)
    commands.fails("scancel", "", 229)
    slurm.nudge(PLACES)
    assert commands.calls("scancel") == ["--quiet --signal=USR1 34_3"]


def test_of_two_jobs_of_an_allocation_the_one_that_runs_is_woken(
    slurm: SlurmBackend, commands: Commands
) -> None:
    other = "33|3|NODE_FAIL|None|gpu1|9|N/A|vtj-1\n36|3|PENDING|None||N/A|N/A|vtj-1\n"
    commands.prints("squeue", other + QUEUED)
    commands.prints("scancel", "")
    slurm.nudge(PLACES)
    slurm.cancel(PLACES[:1])
    assert commands.calls("scancel") == ["--quiet --signal=USR1 34_3", "--quiet 34_3 36_3"]


def test_nothing_to_end_is_no_call(slurm: SlurmBackend, commands: Commands) -> None:
    commands.prints("scancel", "")
    slurm.cancel(PLACES[2:])
    slurm.nudge(PLACES[1:])
    assert commands.calls("scancel") == []


def test_many_places_are_ended_in_commands_of_a_bearable_length(
    slurm: SlurmBackend, commands: Commands
) -> None:
    commands.prints("squeue", "34|0-1200|PENDING|None||N/A|N/A|vtj-1\n")
    commands.prints("scancel", "")
    slurm.cancel(
        [Place(token="vtj-1", index=index, job_id="34", is_array=True) for index in range(1201)]
    )
    words = [call.split()[1:] for call in commands.calls("scancel")]
    assert [len(part) for part in words] == [500, 500, 201]
    assert len({word for part in words for word in part}) == 1201


def test_a_cancel_that_does_not_arrive_is_said(slurm: SlurmBackend, commands: Commands) -> None:
    commands.prints("squeue", QUEUED)
    commands.fails(
        "scancel", "scancel: error: Kill job error on job id 35: Unable to contact slurm controller"
    )
    with pytest.raises(SchedulerUnreachable):
        slurm.cancel(PLACES)


def test_nodes_hand_on_unless_the_site_forbids_it(slurm: SlurmBackend) -> None:
    task = Task(run_id="0" * 16, attempt=1, grid_id="g")
    plain = {
        "token": "vtj-1",
        "created_at": 1.0,
        "lanes": 1,
        "tasks": ((task,),),
        "data_root": "/data",
    }
    for site, words in (({"cpus": 1}, "sbatch"), ({"cpus": 1, "handover": False}, None)):
        argv = slurm.argv(Allocation(shape=shape(), site=site, **plain))  # type: ignore[arg-type]
        assert next(iter(argv), None) == words

"""Sites of another shape: nodes that differ, no default memory, partitions that are closed."""

import pytest

from ..support.slurm import until
from ..support.slurm_user import SlurmUser, slurm_grid

pytestmark = pytest.mark.profiles("mixed")


@pytest.fixture
def mixed(user: SlurmUser) -> SlurmUser:
    """Somebody on the login node of the cluster of nodes that differ."""
    return user


def asked(user: SlurmUser, **grid: str) -> list[str]:
    """Return what `vtjobs plan` says that each job asks for."""
    document = user.json("plan", user.write("grid.yaml", slurm_grid(**grid)))
    return [str(option) for option in document["allocations"][0]["asks"]]


def test_every_gpu_of_nodes_that_differ_is_at_work_though_the_site_has_no_default_memory(
    mixed: SlurmUser,
) -> None:
    options = asked(mixed)
    assert {"--cpus-per-task=4", "--mem=30400M"} <= set(options)
    mixed.cluster.submit("sleep 600", "--array=0-19", *options)
    until(lambda: len(mixed.cluster.ask("squeue", "-hrt", "R").splitlines()) == 20, "20 run")


def test_the_queue_says_when_the_first_job_would_start(mixed: SlurmUser) -> None:
    grid = mixed.write("grid.yaml", slurm_grid())
    assert "slurm expects the first job to start at once" in mixed.ok("plan", grid)
    mixed.cluster.submit("sleep 600", "--exclusive", "--nodes=7", "--time=60")
    until(lambda: mixed.cluster.ask("squeue", "-ht", "R"), "the nodes are taken")
    assert "slurm expects the first job to start in 5" in mixed.ok("plan", grid)


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        (
            {"resources": "gpu: a100", "train": "virtual_ranks: 8"},
            "8 requested, a node of partition gpu has 4 a100",
        ),
        ({"site": "constraint: a100"}, "8 requested, a node of partition gpu has 4"),
    ],
)
def test_a_run_that_no_node_of_its_type_can_serve_is_refused(
    mixed: SlurmUser, grid: dict[str, str], says: str
) -> None:
    text = slurm_grid(**{"train": "virtual_ranks: 8", **grid}).replace(
        "gpus_per_node: 1", "gpus_per_node: 8"
    )
    done = mixed("plan", mixed.write("grid.yaml", text))
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


def test_a_list_of_partitions_is_judged_by_the_one_that_can_serve_the_run(
    mixed: SlurmUser,
) -> None:
    text = slurm_grid(resources="gpu: a100").replace("partition: gpu", "partition: 'cpu,a100'")
    document = mixed.json("plan", mixed.write("grid.yaml", text))
    assert "--mem=121600M" in document["allocations"][0]["asks"]

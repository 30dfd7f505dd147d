"""Sites of another shape: nodes that differ, no default memory, partitions that are closed."""

import pytest

from vtjobs.orchestrator.backends.base import WaitKind
from vtjobs.orchestrator.backends.slurm.pending import explain

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


@pytest.mark.parametrize(
    ("partition", "says"),
    [
        ("theirs", "partition theirs is open to account theirs, not lab"),
        ("elite", "partition elite is open to QOS elite, not normal"),
    ],
)
def test_a_partition_for_others_is_refused_though_slurm_would_take_the_job(
    mixed: SlurmUser, partition: str, says: str
) -> None:
    text = slurm_grid().replace("partition: gpu", f"partition: {partition}")
    done = mixed("submit", mixed.write("grid.yaml", text))
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    job = mixed.cluster.submit("true", f"--partition={partition}")
    assert mixed.cluster.job(job)["JobState"] == "PENDING"


@pytest.mark.parametrize("partition", ["theirs", "elite"])
def test_a_job_that_a_partition_does_not_let_in_is_told_to_wait_in_vain(
    mixed: SlurmUser, partition: str
) -> None:
    job = mixed.cluster.submit("true", f"--partition={partition}")

    def word() -> str:
        return mixed.cluster.ask("squeue", "-hj", job, "-o", "%T %r")

    until(lambda: "not permitted" in word(), "SLURM has judged it")
    found = explain(word(), job=job)
    assert found is not None and found.kind is WaitKind.NEVER

"""The private SLURM cluster of deploy/slurm-dev does what a cluster does, alone and beside another."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from ..support.slurm import SCRIPTS, SlurmCluster, until

pytestmark = pytest.mark.xdist_group("slurm")


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that have a file below a folder open or name it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            places = [command, *(os.readlink(link) for link in (entry / "fd").iterdir())]
        except OSError:
            continue
        if int(entry.name) != os.getpid() and any(str(folder) in place for place in places):
            found.append(command)
    return found


@pytest.fixture
def another(tmp_path: Path, slurm: SlurmCluster) -> SlurmCluster:
    """A second cluster on the machine, without accounting."""
    made = SlurmCluster(slurm.folder.parent / "another", "--fast", "--no-accounting", "--nodes=2")
    made.up()
    return made


def test_it_says_how_to_use_it(slurm_cluster: SlurmCluster) -> None:
    said = slurm_cluster.up()
    assert said == f"export SLURM_CONF={slurm_cluster.folder}/slurm.conf\n"
    assert (slurm_cluster.folder / "env").read_text() == said


def test_a_job_on_a_whole_node_sees_eight_gpus(slurm: SlurmCluster) -> None:
    job = slurm.submit("echo $CUDA_VISIBLE_DEVICES", "--gpus-per-node=8")
    assert slurm.wait_state(job) == "COMPLETED"
    assert slurm.output(job) == "0,1,2,3,4,5,6,7\n"


def test_two_jobs_share_a_node_without_sharing_a_gpu(slurm: SlurmCluster) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES; sleep 1"
    jobs = [slurm.submit(script, "--gpus-per-node=4", "--nodelist=gpu2") for _ in range(2)]
    assert [slurm.wait_state(job) for job in jobs] == ["COMPLETED", "COMPLETED"]
    assert sorted(slurm.output(job) for job in jobs) == ["0,1,2,3\n", "4,5,6,7\n"]


def test_a_step_runs_on_two_nodes(slurm: SlurmCluster) -> None:
    job = slurm.submit(
        "srun bash -c 'echo $SLURMD_NODENAME $SLURM_NODEID'", "--nodes=2", "--ntasks-per-node=1"
    )
    assert slurm.wait_state(job) == "COMPLETED"
    names = dict(line.split() for line in slurm.output(job).splitlines())
    assert len(names) == 2
    assert sorted(names.values()) == ["0", "1"]


def test_the_walltime_signal_reaches_the_tasks_of_both_nodes(slurm: SlurmCluster) -> None:
    task = "trap 'echo told $SLURM_NODEID; exit 0' USR2; echo ready; sleep 50 & wait"
    # The signal is due 55 s before the end of a minute, that is within seconds of the start.
    options = ("--nodes=2", "--ntasks-per-node=1", "--time=1", "--signal=USR2@55")
    job = slurm.submit(f'srun bash -c "{task.replace("$", chr(92) + "$")}"', *options)
    slurm.wait_state(job)
    assert sorted(line for line in slurm.output(job).splitlines() if "told" in line) == [
        "told 0",
        "told 1",
    ]


@pytest.mark.profiles("default", "mixed", "tight", "bare")
def test_accounting_keeps_a_row_of_a_job(slurm: SlurmCluster) -> None:
    job = slurm.submit("exit 3", "--job-name=three")
    slurm.wait_state(job)
    row = f"{job}|three|FAILED|3:0|lab"
    ask = ("sacct", "-X", "-n", "-P", "-j", job, "--format=JobID,JobName,State,ExitCode,Account")
    until(lambda: slurm.ask(*ask) == row, f"sacct has {row}")


def test_a_job_of_high_preempts_one_of_low(slurm: SlurmCluster) -> None:
    low = slurm.submit(
        "sleep 300", "--partition=low", "--no-requeue", "--nodelist=gpu0", "--gpus-per-node=8"
    )
    slurm.wait_state(low, "RUNNING")
    high = slurm.submit("true", "--partition=high", "--nodelist=gpu0", "--gpus-per-node=8")
    assert slurm.wait_state(low) == "PREEMPTED"
    assert slurm.wait_state(high) == "COMPLETED"


def test_a_killed_controller_comes_back_with_its_jobs(slurm: SlurmCluster) -> None:
    job = slurm.submit("sleep 300")
    slurm.wait_state(job, "RUNNING")
    started = time.time()
    # The controller writes its state every few seconds; one killed before that has never heard of a
    # job's start.
    until(
        lambda: (slurm.folder / "state" / "job_state").stat().st_mtime > started,
        "the state is saved",
    )
    pid = (slurm.folder / "run" / "slurmctld.pid").read_text()
    slurm.kill("slurmctld")
    slurm.up()
    assert slurm.job(job)["JobState"] == "RUNNING"
    assert (slurm.folder / "run" / "slurmctld.pid").read_text() != pid


def test_the_jobs_of_a_killed_node_go_with_it_only_where_the_machine_died(
    slurm: SlurmCluster,
) -> None:
    script = f"while sleep 0.2; do date +%N >>{slurm.folder}/alive; done"
    slurm.wait_state(slurm.submit(script, "--nodelist=gpu3"), "RUNNING")
    alive = slurm.folder / "alive"
    until(alive.exists, "the job writes")
    slurm.kill("gpu3")
    size = alive.stat().st_size
    until(lambda: alive.stat().st_size > size, "the job goes on without its node's daemon")
    slurm.kill("gpu3", steps=True)
    # A `sleep` that the loop had just begun outlives it by a moment.
    until(
        lambda: not [command for command in processes_of(slurm.folder) if "sleep 0.2" in command],
        "the job goes with the machine",
    )


def test_a_node_taken_away_ends_its_jobs_and_stays_away_until_it_is_given_back(
    slurm: SlurmCluster,
) -> None:
    job = slurm.submit("sleep 300", "--no-requeue", "--nodelist=gpu1")
    slurm.wait_state(job, "RUNNING")
    slurm.node_down("gpu1")
    assert slurm.wait_state(job) == "NODE_FAIL"
    time.sleep(3)
    assert slurm.ask("sinfo", "-h", "-n", "gpu1", "-p", "gpu", "-o", "%t") == "down"
    slurm.node_up("gpu1")
    until(
        lambda: slurm.ask("sinfo", "-h", "-n", "gpu1", "-p", "gpu", "-o", "%t") == "idle",
        "the node is back",
    )


def test_a_paused_controller_answers_nobody_until_it_is_resumed(slurm: SlurmCluster) -> None:
    slurm.pause("slurmctld")
    with pytest.raises(subprocess.TimeoutExpired):
        slurm.run("squeue", timeout_s=1)
    slurm.resume("slurmctld")
    assert slurm.run("squeue").returncode == 0


# Profiles -----------------------------------------------------------------------------------------


@pytest.mark.profiles("mixed")
def test_a_mixed_cluster_gives_each_type_its_own_nodes(slurm: SlurmCluster) -> None:
    shape = set(slurm.ask("sinfo", "-h", "-p", "gpu", "-o", "%D %G %c").splitlines())
    assert shape == {"4 gpu:v100:8 32", "2 gpu:a100:4 64", "1 (null) 128"}
    script = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    job = slurm.submit(script, "--gpus-per-node=a100:4")
    assert slurm.wait_state(job) == "COMPLETED"
    assert slurm.output(job).strip() in ("gpu4 0,1,2,3", "gpu5 0,1,2,3")
    assert slurm.ask("sinfo", "-h", "-p", "a100,cpu", "-o", "%P %N").splitlines() == [
        "a100 gpu[4-5]",
        "cpu cpu0",
    ]


@pytest.mark.profiles("tight")
def test_a_tight_cluster_refuses_large_arrays_and_many_jobs(slurm: SlurmCluster) -> None:
    later = ("--begin=now+1hour", "--wrap=true")
    assert "Invalid job array" in slurm.run("sbatch", "--array=0-7", *later).stderr
    slurm.ask("sbatch", "--array=0-2", "--qos=few", *later)
    assert "QOSMaxSubmitJobPerUserLimit" in slurm.run("sbatch", "--qos=few", *later).stderr
    slurm.ask("sbatch", "--array=0-6", *later)
    # Twelve jobs of one user are the association's limit, whatever the QOS.
    slurm.ask("sbatch", "--array=0-1", *later)
    assert "AssocMaxSubmitJobLimit" in slurm.run("sbatch", *later).stderr


@pytest.mark.profiles("tight")
def test_a_tight_cluster_accepts_what_it_can_never_run(slurm: SlurmCluster) -> None:
    job = slurm.submit("true", "--partition=short", "--time=60")
    until(lambda: slurm.job(job).get("Reason") == "PartitionTimeLimit", "it waits for ever")


@pytest.mark.profiles("bare")
def test_a_bare_cluster_gives_a_job_a_nodes_whole_memory_and_soon_forgets_it(
    slurm: SlurmCluster,
) -> None:
    job = slurm.submit("sleep 1", "--gpus=1")
    until(lambda: "mem=250G" in slurm.job(job).get("TRES", ""), "it has all memory")
    # SLURM removes old jobs once a minute.
    until(lambda: not slurm.job(job), "the controller has forgotten it", 90)


@pytest.mark.profiles("no-accounting")
def test_a_cluster_without_accounting_answers_no_sacct(slurm: SlurmCluster) -> None:
    assert slurm.wait_state(slurm.submit("true")) == "COMPLETED"
    assert "accounting storage is disabled" in slurm.run("sacct").stderr.lower()


# Side by side -------------------------------------------------------------------------------------


def test_two_clusters_run_side_by_side_and_stopping_one_leaves_the_other(
    slurm: SlurmCluster, another: SlurmCluster
) -> None:
    jobs = [cluster.submit("srun sleep 300", "--gpus=1") for cluster in (slurm, another)]
    for cluster, job in zip((slurm, another), jobs, strict=True):
        cluster.wait_state(job, "RUNNING")
    assert len(another.ask("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N").splitlines()) == 2
    another.down()
    assert processes_of(another.folder) == []
    assert slurm.job(jobs[0])["JobState"] == "RUNNING"


def test_down_and_up_can_be_repeated_and_keep_the_accounting(another: SlurmCluster) -> None:
    job = another.submit("true")
    another.wait_state(job)
    another.down()
    another.down()
    another.up()
    assert int(another.submit("true")) > int(job)
    another.down()


def test_other_options_for_a_folder_that_is_a_cluster_are_refused(
    slurm_cluster: SlurmCluster,
) -> None:
    done = subprocess.run(
        [SCRIPTS / "up", slurm_cluster.folder, "--nodes=3"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "other options" in done.stderr


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    done = subprocess.run([SCRIPTS / "up", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_down_on_a_folder_without_a_cluster_does_nothing(tmp_path: Path) -> None:
    assert subprocess.run([SCRIPTS / "down", tmp_path / "none"]).returncode == 0

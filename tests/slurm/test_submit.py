"""From a grid to jobs: what is submitted, once and no more, whatever happens meanwhile."""

import grp
import json
import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.workspace.allocation import Allocation

from ..support.postgres import PostgresServer
from ..support.slurm import with_accounting, without_limits
from ..support.slurm_user import LATER, SlurmUser, counted, processes, slurm_grid, wait_for

# What is submitted --------------------------------------------------------------------------------


@without_limits
def test_a_grid_is_one_array_and_leaves_few_files_until_it_starts(user: SlurmUser) -> None:
    user.submit(slurm_grid(seeds="20", site=LATER))
    assert user.queue("%K") == ["0-19"]
    assert user.states() == {"queued": 20}
    files = [path for path in user.workspace.rglob("*") if path.is_file()]
    assert len(files) <= 3 * 20, files


def test_a_group_shares_also_what_slurm_opens_and_what_an_agent_writes(user: SlurmUser) -> None:
    # This user's first group, which every user has: who may give files away is tested elsewhere.
    user.write("vtjobs.yaml", f"group: {grp.getgrgid(os.getegid()).gr_name}\n")
    mask = os.umask(0o077)
    try:
        done = user.process("submit", user.write("grid.yaml", slurm_grid()), "--wait")
    finally:
        os.umask(mask)
    assert done.returncode == 0, done.stderr
    modes = {
        str(path.relative_to(user.workspace)): stat.S_IMODE(path.stat().st_mode)
        for path in user.workspace.rglob("*")
    }
    logs = [name for name in modes if name.startswith("allocations/") and name.endswith(".log")]
    assert len(logs) == 1
    assert {name: oct(mode) for name, mode in modes.items() if mode not in (0o660, 0o2770)} == {}


@pytest.mark.long
@pytest.mark.profiles("default", "mixed", "bare")
def test_an_array_of_twenty_runs_completes(user: SlurmUser) -> None:
    assert "20 completed" in user.submit(slurm_grid(seeds="20"), "--wait")
    assert counted([run["state"] for run in user.runs()]) == {"completed": 20}
    assert {run["attempts"] for run in user.runs()} == {1}
    wait_for(lambda: user.accounted("State") == ["COMPLETED"] * 20)
    assert len({line.partition("_")[0] for line in user.accounted("JobID")}) == 1


def test_a_job_inherits_no_key_of_the_submitters_shell_but_what_the_grid_names(
    user: SlurmUser,
) -> None:
    script, agents = user.folder / "container", user.folder / "agent.env"
    script.write_text(f'#!/bin/sh\nenv > {agents}\nexec "$@"\n')
    script.chmod(0o755)
    site = f"container: [{script}], environment: WANDB_API_KEY, setup: 'export PLACE=$LAB/x'"
    keys = {"WANDB_API_KEY": "named", "HF_TOKEN": "canary", "AWS_SECRET_ACCESS_KEY": "canary"}
    user.submit(slurm_grid(site=site), "--wait", LAB="lab", **keys)
    found = agents.read_text().splitlines()
    assert "WANDB_API_KEY=named" in found and "PLACE=lab/x" in found
    assert not [line for line in found if line.endswith("=canary")]


def test_nothing_of_the_submitters_environment_changes_a_job(user: SlurmUser) -> None:
    wishes = {
        "SBATCH_TIMELIMIT": "1",
        "SBATCH_PARTITION": "down",
        "SBATCH_JOB_NAME": "mine",
        "SBATCH_ARRAY_INX": "0-3",
    }
    inside = {
        "SLURM_JOB_ID": "77",
        "SLURM_CPUS_PER_TASK": "31",
        "SLURM_NTASKS": "9",
        "SLURM_TIMELIMIT": "2",
    }
    user.submit(slurm_grid(name="plain", seeds="[1]", site=LATER))
    (plain,) = user.queue()
    user.submit(slurm_grid(seeds="[2]", site=LATER), **wishes, **inside)
    (job,) = set(user.queue()) - {plain}
    same = ("Partition", "TimeLimit", "Requeue", "KillOInInvalidDependent", "NumNodes", "CPUs/Task")
    seen, expected = user.cluster.job(job), user.cluster.job(plain)
    assert [seen[name] for name in same] == [expected[name] for name in same]
    assert (seen["Partition"], seen["TimeLimit"]) == ("gpu", "00:10:00")
    tokens = [path.stem for path in (user.workspace / "allocations").glob("*.json")]
    assert seen["JobName"] in tokens
    assert "ArrayJobId" not in seen


@pytest.mark.profiles("tight")
def test_a_grid_larger_than_an_array_may_be_is_several_arrays(user: SlurmUser) -> None:
    user.submit(slurm_grid(seeds="10", site=LATER))
    assert sorted(user.queue("%K")) == ["0-2", "0-6"]
    assert user.states() == {"queued": 10}


@pytest.mark.profiles("no-accounting")
def test_a_cluster_without_accounting_trains_all_the_same(user: SlurmUser) -> None:
    assert "2 completed" in user.submit(slurm_grid(seeds="2"), "--wait")
    assert {user.source(run["run_id"], "completed") for run in user.runs()} == {"journal"}


def test_a_job_can_submit(user: SlurmUser) -> None:
    user.write("grid.yaml", slurm_grid())
    outer = user.cluster.submit(
        user.inside("submit", "grid.yaml", "--wait"), "--cpus-per-task=2", "--time=5"
    )
    assert user.cluster.wait_state(outer, within_s=180) == "COMPLETED", user.cluster.output(outer)
    assert user.states() == {"completed": 1}


# Once and no more ---------------------------------------------------------------------------------


def test_submitting_twice_submits_once(user: SlurmUser) -> None:
    text = slurm_grid(seeds="3", site=LATER)
    user.submit(text)
    jobs = user.queue()
    assert "3 already queued" in user.submit(text)
    assert user.queue() == jobs
    assert {run["attempts"] for run in user.runs()} == {1}


def test_a_submitter_killed_once_slurm_had_the_job_leaves_one_that_is_found_again(
    user: SlurmUser,
) -> None:
    # Its parent is `timeout`, and that one's parent is the submitter.
    kill = 'real "$@"; kill -9 $(ps -o ppid= -p $PPID)'
    done = user(
        "submit",
        user.write("grid.yaml", slurm_grid(seeds="3", site=LATER)),
        **user.sbatch_does(kill),
    )
    assert done.returncode == -9
    jobs = user.queue("%F %K")
    assert len(jobs) == 1
    assert user.states() == {"queued": 3}
    user.submit(slurm_grid(seeds="3", site=LATER))
    assert user.queue("%F %K") == jobs
    assert {user.source(run["run_id"], "queued") for run in user.runs()} == {"squeue"}
    assert {run["attempts"] for run in user.runs()} == {1}


def test_a_submission_whose_reply_was_lost_is_found_again(user: SlurmUser) -> None:
    paused = f'{user.fault("pause", "slurmctld")}; real "$@"'
    done = user(
        "submit",
        user.write("grid.yaml", slurm_grid(seeds="3", site=LATER)),
        **user.sbatch_does(paused),
    )
    assert done.returncode == 5, done.stderr
    assert "slurm unreachable since" in done.stderr
    user.cluster.resume("slurmctld")
    wait_for(user.queue)
    user.submit(slurm_grid(seeds="3", site=LATER))
    assert len(user.queue()) == 1
    assert user.states() == {"queued": 3}
    assert {run["attempts"] for run in user.runs()} == {1}


# When something is away ---------------------------------------------------------------------------


def asked(user: SlurmUser) -> subprocess.CompletedProcess[str]:
    """Return the first status that could not be had from SLURM.

    One within a second of another does not ask.
    """
    seen: list[subprocess.CompletedProcess[str]] = []
    wait_for(lambda: (seen.append(user("status", "--json")), seen[-1].returncode == 5)[1])
    return seen[-1]


def test_without_a_controller_nothing_is_submitted_and_nothing_changes(user: SlurmUser) -> None:
    user.submit(slurm_grid(site=LATER))
    before = user.states()
    user.cluster.kill("slurmctld")
    done = asked(user)
    assert "slurm unreachable since" in done.stderr
    assert '"queued": 1' in done.stdout
    again = user("submit", user.write("other.yaml", slurm_grid(name="other", seeds="[7]")))
    assert again.returncode == 5
    user.cluster.up()
    assert user.states() == before
    user.submit(slurm_grid(name="other", seeds="[7]", site=LATER))
    assert user.states() == {"queued": 2}


@pytest.fixture
def hung(user: SlurmUser) -> Iterator[SlurmUser]:
    """A user with a queued run, whose controller stands still."""
    user.submit(slurm_grid(site=LATER))
    user.cluster.pause("slurmctld")
    yield user
    user.cluster.resume("slurmctld")


def test_a_controller_that_hangs_is_slow_to_those_who_look(hung: SlurmUser) -> None:
    looks: list[tuple[float, subprocess.CompletedProcess[str]]] = []

    def is_slow() -> bool:
        began = time.monotonic()
        done = hung("status", "--json")
        looks.append((time.monotonic() - began, done))
        return bool(json.loads(done.stdout)["slow"])

    # One within a second of the submission does not ask.
    wait_for(is_slow)
    took_s, seen = looks[-1]
    assert all(done.returncode == 0 for _, done in looks)
    # Not for as long as SLURM's own clients wait.
    assert took_s < 9
    assert "slurm did not answer in time (squeue did not answer within 2 s)" in seen.stderr
    assert "showing the states of its last answer" in seen.stderr
    document = json.loads(seen.stdout)
    assert (document["runs"]["queued"], document["unreachable"]) == (1, [])
    (slow,) = document["slow"]
    assert slow["backend"] == "slurm" and slow["answered"] <= slow["since"]
    hung.cluster.resume("slurmctld")
    wait_for(lambda: hung.json("status")["slow"] == [])


@pytest.mark.long
def test_a_controller_that_hangs_takes_no_submission(hung: SlurmUser) -> None:
    other = hung("submit", hung.write("other.yaml", slurm_grid(name="other", seeds="[7]")))
    seen = hung("status")
    hung.cluster.resume("slurmctld")
    assert other.returncode == 5
    # Whose patience ends first, squeue's or ours, is the cluster's setting.
    assert "did not answer" in other.stderr or "timed out" in other.stderr
    assert seen.returncode == 0, seen.stderr
    assert hung.states() == {"queued": 1}
    assert len(hung.queue()) == 1


@pytest.mark.profiles("no-accounting")
def test_without_accounting_what_somebody_cancels_in_the_queue_is_not_submitted_again(
    user: SlurmUser,
) -> None:
    user.submit(slurm_grid(seeds="3", site=LATER))
    user.cluster.ask("scancel", *user.queue())
    # Nobody looks before the controller has forgotten them.
    wait_for(lambda: not user.cluster.ask("squeue", "-h", "--states=all", "-o", "%i"))
    user.wait_states({"cancelled": 3})
    assert user.queue() == []
    assert {run["attempts"] for run in user.runs()} == {1}


def test_a_controller_that_nothing_hangs_on_any_more_is_forgotten(user: SlurmUser) -> None:
    user.submit(slurm_grid(), "--hold")
    user.cluster.kill("slurmctld")
    assert user("release", "all").returncode == 5
    assert user("cancel", "all").returncode == 5
    assert user.states() == {"cancelled": 1}


@with_accounting
def test_without_accounting_daemon_runs_go_their_way(user: SlurmUser) -> None:
    user.cluster.kill("slurmdbd")
    assert "1 completed" in user.submit(slurm_grid(), "--wait")


# Nothing hostile gets through ---------------------------------------------------------------------

HOSTILE = {
    "partition": '"gpu\\nid"',
    "account": '"$(id)"',
    "qos": '"a b"',
    "reservation": '"--wrap=id"',
    "constraint": '"a;id"',
    "exclude": '"gpu0`id`"',
    "mem": '"1G --wrap=id"',
    "modules": '["x; id"]',
    "setup": '["echo\\nid"]',
    "container": '["sh -c id"]',
    "python": '"python;id"',
    "array_parallelism": '"1; id"',
    "node_gpus": '"8 id"',
    "cpus_per_gpu": "-1",
    "lead": '"1m; id"',
    "handover": '"no; id"',
    "extra": '{wrap: "id"}',
}


def test_a_hostile_setting_is_refused_before_anything_is_written(user: SlurmUser) -> None:
    settings = ", ".join(f"{key}: {value}" for key, value in HOSTILE.items())
    done = user(
        "submit", user.write("grid.yaml", slurm_grid().replace("partition: gpu, ", settings))
    )
    assert done.returncode == 2, done.stderr
    assert [key for key in HOSTILE if f"slurm.{key}" not in done.stderr] == []
    assert not user.workspace.exists()
    assert user.queue() == []


@pytest.mark.parametrize(
    "extra", ['{wrap: "x"}', '{nice: "1 --wrap=id"}', '{"nice=1 --wrap": "id"}']
)
def test_an_option_that_is_not_known_is_no_way_around(user: SlurmUser, extra: str) -> None:
    done = user("submit", user.write("grid.yaml", slurm_grid(site=f"extra: {extra}")))
    assert done.returncode == 2, done.stderr
    assert "slurm.extra" in done.stderr
    assert not user.workspace.exists()


# Secrets ------------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """Looks at the command lines of all processes, again and again."""

    def __init__(self, secret: str) -> None:
        super().__init__(daemon=True)
        self.secret = secret
        self.looks = 0
        self.found: set[str] = set()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            self.found |= {
                line for _, words in processes() if self.secret in (line := " ".join(words))
            }
            self.looks += 1


@with_accounting
def test_the_ledgers_password_stays_on_the_login_node(
    user: SlurmUser, postgres: PostgresServer
) -> None:
    secret, folder = postgres.password, user.cluster.folder
    user.env |= {"VTJOBS_LEDGER": postgres.new_database(), "PGPASSWORD": secret}
    watch = Watch(secret)
    watch.start()
    user.submit(slurm_grid(seeds="2", epochs=3, site=LATER))
    jobs = user.queue()
    scripts = [user.cluster.ask("scontrol", "write", "batch_script", job, "-") for job in jobs]
    user.let_start()
    wait_for(user.agents)
    environments = [Path(f"/proc/{pid}/environ").read_text() for pid in user.agents()]
    assert environments and all("SLURM_JOB_ID" in text for text in environments)
    assert "2 completed" in user.submit(slurm_grid(seeds="2", epochs=3, site=LATER), "--wait")
    watch.over.set()
    watch.join()
    accounts = user.accounted("JobName,SubmitLine,Comment,AdminComment")
    assert watch.looks > 20 and accounts
    for what in (*watch.found, *scripts, *environments, *accounts):
        assert secret not in what
    places = [
        path
        for base in (user.workspace, folder / "log", folder / "spool")
        for path in base.rglob("*")
    ]
    assert not [path for path in places if path.is_file() and secret.encode() in path.read_bytes()]


def test_a_grid_without_a_walltime_counts_with_the_one_of_its_partition(user: SlurmUser) -> None:
    text = slurm_grid(site=LATER).replace(", walltime: 10m", "").replace(": gpu,", ": short,")
    user.submit(text)
    assert user.queue("%l") == ["5:00"]
    (path,) = (user.workspace / "allocations").glob("*.json")
    shape = Allocation.from_dict(read_json(path)).shape
    assert (shape.walltime_s, shape.lead_s) == (300, 75)
    assert "--time=5" in Allocation.from_dict(read_json(path)).argv


def test_a_walltime_that_may_end_before_the_first_checkpoint_is_refused(user: SlurmUser) -> None:
    done = user("submit", user.write("grid.yaml", slurm_grid(walltime="1m")))
    assert done.returncode == 2
    assert "resources.walltime: 1m00s may end before a run reaches its first" in done.stderr
    assert "Ask for 2m00s at least" in done.stderr
    assert user.queue() == []

"""Jobs that wait, that are taken away, and that never start.

What vtjobs says, and what it leaves alone.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.lineage import completed_by, read_attempt
from vtjobs.jobs.workspace.paths import Workspace

from ..support.grids import ENDLESS
from ..support.slurm import SlurmCluster, with_accounting
from ..support.slurm_user import LATER, SlurmUser, counted, slurm_grid, wait_for

# Trains until it is told to stop.


def only_run(user: SlurmUser) -> str:
    (run,) = user.runs()
    return str(run["run_id"])


def is_training(user: SlurmUser) -> bool:
    return any(
        b'"kind":"epoch"' in path.read_bytes()
        for path in user.workspace.glob("??/*/attempts/*/journal-0.jsonl")
    )


# Why it waits -------------------------------------------------------------------------------------


def test_a_job_held_in_slurm_is_the_users_to_release(user: SlurmUser) -> None:
    user.submit(slurm_grid(site=LATER))
    (job,) = user.queue()
    user.cluster.ask("scontrol", "uhold", job)
    wait_for(lambda: user.why(only_run(user))["verdict"] == "act")
    answer = user.why(only_run(user))
    assert (answer["state"], answer["reason"]) == ("queued", "JobHeldUser")
    assert answer["action"] == f"scontrol release {job}"
    warned = user("status").stderr
    assert "will not start by itself" in warned and "JobHeldUser" in warned


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"resources": "gpus_per_node: 16"}, "gpus_per_node"),
        ({"resources": "nodes: 9"}, "nodes"),
        ({"resources": "gpu: h100"}, "gpu"),
        ({"walltime": "2d"}, "walltime"),
        ({"partition": "down"}, "partition"),
        ({"partition": "nope"}, "partition"),
    ],
)
def test_what_a_partition_can_never_run_is_refused(
    user: SlurmUser, changes: dict[str, str], key: str
) -> None:
    partition = changes.pop("partition", "gpu")
    text = slurm_grid(**changes).replace("partition: gpu,", f"partition: {partition},")
    text = text.replace("gpus_per_node: 1, gpus_per_node", "gpus_per_node")
    done = user("submit", user.write("grid.yaml", text))
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[0].split(": ")[2].endswith(key), done.stderr
    assert not user.workspace.exists()
    assert user.queue() == []


@pytest.fixture
def changeable(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, whose partition `short` is afterwards as it was."""
    yield slurm
    slurm.ask("scontrol", "update", "partitionname=short", "state=up", "maxtime=00:10:00")


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ("maxtime=00:05:00", "PartitionTimeLimit", "can never start"),
        ("state=down", "PartitionDown", "will not start by itself"),
    ],
)
def test_a_partition_that_changes_under_a_job_is_told(
    user: SlurmUser, changeable: SlurmCluster, change: str, reason: str, words: str
) -> None:
    # Too many cores are busy for it to start before the change.
    nodes = len(changeable.nodes())
    blocker = changeable.submit("sleep 300", f"--nodes={nodes}", "--exclusive", "--time=30")
    changeable.wait_state(blocker, "RUNNING")
    user.submit(slurm_grid().replace("partition: gpu,", "partition: short,"))
    changeable.ask("scontrol", "update", "partitionname=short", change)
    wait_for(lambda: user.why(only_run(user))["reason"] == reason)
    warned = user("status").stderr
    assert words in warned and reason in warned
    assert user.states() == {"queued": 1}


# Taken away ---------------------------------------------------------------------------------------


@with_accounting
def test_an_element_cancelled_in_slurm_before_it_started_stays_cancelled_until_retried(
    user: SlurmUser,
) -> None:
    user.submit(slurm_grid(seeds="3", site=LATER))
    (job,) = user.queue()
    run = user.runs()[1]["run_id"]
    user.cluster.ask("scancel", f"{job}_1")
    # Accounting is believed about what is not there only after half a minute.
    wait_for(lambda: user.states() == {"queued": 2, "cancelled": 1})
    assert user.source(run, "cancelled") == "sacct"
    assert user.states() == {"queued": 2, "cancelled": 1}
    user.ok("retry", run)
    assert user.states() == {"queued": 3}
    assert len(user.queue()) == 2


def test_an_array_cancelled_in_slurm_before_it_started_stays_cancelled(user: SlurmUser) -> None:
    user.submit(slurm_grid(seeds="3", site=LATER))
    user.cluster.ask("scancel", *user.queue())
    user.wait_states({"cancelled": 3})
    assert {user.source(run["run_id"], "cancelled") for run in user.runs()} == {"squeue"}
    assert user.states() == {"cancelled": 3}
    assert user.queue() == []


def test_a_running_job_cancelled_in_slurm_stays_cancelled_and_goes_on_when_retried(
    user: SlurmUser,
) -> None:
    text = slurm_grid(epochs=ENDLESS)
    user.submit(text)
    wait_for(lambda: is_training(user))
    user.cluster.ask("scancel", *user.queue())
    user.wait_states({"cancelled": 1})
    assert user.source(only_run(user), "cancelled") == "journal"
    # The node takes a moment to clean up after a job whose agent has written its end.
    wait_for(lambda: user.queue() == [])
    assert "1 already cancelled" in user.submit(text)
    assert (user.states(), user.queue()) == ({"cancelled": 1}, [])
    user.ok("retry", only_run(user))
    wait_for(lambda: user.show(only_run(user))["attempts"][-1]["resumed_step"])
    user.ok("cancel", only_run(user))


def test_cancel_ends_waiting_and_running_jobs_alike(user: SlurmUser) -> None:
    user.submit(slurm_grid(epochs=ENDLESS))
    user.submit(slurm_grid(name="waiting", seeds="[1, 2]", site=LATER))
    wait_for(lambda: is_training(user))
    user.ok("cancel", "all")
    wait_for(lambda: user.queue() == [])
    user.wait_states({"cancelled": 3})
    assert user.agents() == []


def test_a_cancel_that_the_controller_could_not_hear_is_carried_out_later(user: SlurmUser) -> None:
    user.submit(slurm_grid(seeds="2", site=LATER))
    user.cluster.kill("slurmctld")
    done = user("cancel", "all")
    assert done.returncode == 5, done.stderr
    user.cluster.up()
    assert len(user.queue()) == 1
    wait_for(lambda: user("supervise", "--once") and user.queue() == [])
    user.wait_states({"cancelled": 2})


# Held back ----------------------------------------------------------------------------------------


def test_a_queued_agent_obeys_a_hold_and_the_canary_at_no_cost(user: SlurmUser) -> None:
    user.submit(slurm_grid(seeds="2", site=LATER))
    held = user.runs()[0]["run_id"]
    user.ok("hold", held)
    user.let_start()
    wait_for(
        lambda: counted([run["state"] for run in user.runs()]) == {"pending": 1, "completed": 1}
    )
    assert user.ends(held) == [("superseded", "skipped")]
    assert user.why(held)["sentence"] == "it is on hold"
    user.ok("release", held)
    user.let_start()
    user.wait_states({"completed": 2})
    assert user.ends(held) == [("superseded", "skipped"), ("completed", None)]


def test_a_queued_agent_waits_for_a_canary_that_was_asked_for_later(user: SlurmUser) -> None:
    text = slurm_grid(seeds="3", site=LATER)
    user.submit(text)
    user.submit(text, "--canary")
    first, *others = [run["run_id"] for run in user.runs()]
    folder = Workspace(user.workspace)
    (array,) = user.queue()
    for element in (1, 2):
        user.cluster.ask("scontrol", "update", f"jobid={array}_{element}", "starttime=now")
    # No command looks meanwhile: it is the agents that hold back.
    wait_for(lambda: all(read_attempt(folder.run(run_id), 1).end is not None for run_id in others))
    assert [user.ends(run_id)[0] for run_id in others] == [("superseded", "skipped")] * 2
    user.let_start()
    # The canary's own agent takes the others on. A pass meanwhile might submit one of them, to
    # start an hour later like the rest of the grid.
    runs = [folder.run(run_id) for run_id in (first, *others)]
    wait_for(lambda: all(completed_by(run, 1 << 30) is not None for run in runs))
    assert user.states() == {"completed": 3}
    assert user.ends(first) == [("completed", None)]


@with_accounting
def test_a_canarys_own_job_takes_the_rest_on_with_no_command(user: SlurmUser) -> None:
    user.submit(slurm_grid(seeds="3"), "--canary")
    folder = Workspace(user.workspace)
    runs = [folder.run(run["run_id"]) for run in user.runs()]
    wait_for(lambda: all(completed_by(run, 1 << 30) is not None for run in runs))
    assert len(user.accounted("JobID")) == 1
    assert user.states() == {"completed": 3}


def test_alike_failures_stop_a_grid(user: SlurmUser) -> None:
    # An installation that has come apart: the agents start, and what they need for a run does not.
    (user.folder / "torch.py").write_text(
        "raise ImportError('libcudart.so.12: cannot open shared object file')"
    )
    site = f'setup: ["export PYTHONPATH={user.folder}"]'
    user.submit(slurm_grid(seeds="8", site=site, more="heads: [supervised]\nmax_running: 2"))
    wait_for(lambda: "runs failed with the same error" in user("supervise", "--once").stderr)
    wait_for(lambda: user.states().keys() == {"failed", "pending"} and user.queue() == [])
    states = user.states()
    # Beside the third one that failed, another was under way.
    assert 3 <= states["failed"] <= 4, states
    assert user.show(user.runs()[0]["run_id"])["attempts"][0]["failure"] == "setup_error"
    waiting = next(run["run_id"] for run in user.runs() if run["state"] == "pending")
    assert user.why(waiting)["verdict"] == "act"


# Looking after it ---------------------------------------------------------------------------------


@with_accounting
def test_the_doctor_asks_a_node(user: SlurmUser) -> None:
    user.submit(slurm_grid(), "--hold")
    done = user("doctor", "--probe", "--json", VTJOBS_BACKEND="slurm")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["slurm"]["text"].startswith("22.05")
    assert checks["slurm_accounting"]["text"] == "sacct answers"
    assert checks["slurm_partition"]["ok"] and "v100 GPUs" in checks["slurm_partition"]["text"]
    assert checks["probe_workspace"]["ok"] and checks["probe_clock"]["ok"], checks
    assert "a node reached the controller" in checks["slurm_handover"]["text"]


def test_a_node_that_does_not_reach_the_controller_is_known_from_the_first_job_on(
    user: SlurmUser,
) -> None:
    def handover() -> dict[str, object]:
        done = user("doctor", "--json", VTJOBS_BACKEND="slurm")
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        return dict(checks["slurm_handover"])

    user.submit(slurm_grid(name="first"), "--hold")
    assert str(handover()["text"]).startswith("not known yet")
    # Such a node has everything but SLURM's commands; the job script itself needs srun.
    path = _without_slurm(user)
    site = f'setup: ["export PATH={path}"]'
    user.submit(slurm_grid(name="blind", seeds="[1]", site=site), "--wait")
    seen = handover()
    assert not seen["ok"] and "no command to submit with" in str(seen["text"]), seen
    said = user.submit(slurm_grid(name="seeing", seeds="[2]"))
    assert "Jobs cannot retry or hand on: a node did not reach slurm (gpu" in said
    assert "Passes do it. From cron: vtjobs supervise --install" in said
    user.ok("wait", "seeing")
    assert "a node reached the controller (gpu" in str(handover()["text"])
    assert "Jobs cannot" not in user.submit(slurm_grid(name="seeing", seeds="[2]"))


def _without_slurm(user: SlurmUser) -> Path:
    """Make a folder with every program but those that ask or tell SLURM."""
    folder = user.folder / "programs"
    folder.mkdir()
    absent = {"sbatch", "squeue", "scontrol", "sacct", "scancel", "sinfo"}
    for program in Path("/usr/bin").iterdir():
        if program.name not in absent:
            (folder / program.name).symlink_to(program)
    if not (folder / "srun").exists():
        (folder / "srun").symlink_to(user.cluster.ask("which", "srun"))
    return folder


def test_supervise_drives_a_grid_to_its_end_two_at_a_time(user: SlurmUser) -> None:
    text = slurm_grid(seeds="4", more="heads: [supervised]\nmax_running: 2")
    user.submit(text, "--hold")
    keeper = user.start("supervise", "--every", "1")
    user.ok("release", "all")
    most = 0

    def ended() -> bool:
        nonlocal most
        states = user.states()
        most = max(most, states.get("queued", 0) + states.get("running", 0))
        return states == {"completed": 4}

    try:
        wait_for(ended)
    finally:
        keeper.send_signal(signal.SIGTERM)
        assert keeper.wait(30) == 0
    assert most == 2

"""Where runs are put.

Several on a node, one on several nodes, one after another, and away from bad nodes.
"""

import os
import signal
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.events import Start
from vtjobs.jobs.workspace.lineage import read_attempt
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.slurm.exclude import exclude

from ..support.grids import ENDLESS
from ..support.lab import children
from ..support.slurm import SlurmCluster, with_accounting
from ..support.slurm_user import SlurmUser, counted, slurm_grid, wait_for

WHOLE = ("partition: gpu,", "partition: whole,")


def start_of(user: SlurmUser, run_id: str, attempt: int = 1) -> Start:
    """Return what an attempt said of itself when it started."""
    record = read_attempt(Workspace(user.workspace).run(run_id), attempt)
    assert record.start is not None, run_id
    return record.start


def ranks(user: SlurmUser) -> list[int]:
    return [
        rank
        for agent in user.agents()
        for template in children(agent)
        for rank in children(template)
    ]


def ids(user: SlurmUser) -> list[str]:
    return [str(run["run_id"]) for run in user.runs()]


@pytest.mark.long
@with_accounting
def test_eight_runs_share_a_node_and_the_death_of_one_leaves_the_others(user: SlurmUser) -> None:
    text = slurm_grid(seeds="8", epochs=6, resources="gpu: v100").replace(*WHOLE)
    user.submit(text)
    wait_for(lambda: len(ranks(user)) >= 4)
    os.kill(ranks(user)[0], signal.SIGKILL)
    assert "8 completed" in user.submit(text, "--wait")
    runs = user.runs()
    assert counted([str(run["attempts"]) for run in runs]) == {"1": 7, "2": 1}
    (victim,) = [run["run_id"] for run in runs if run["attempts"] == 2]
    assert user.ends(victim)[0][0] == "failed"
    starts = [start_of(user, run_id) for run_id in ids(user)]
    assert sorted(start.gpus for start in starts) == [[str(gpu)] for gpu in range(8)]
    assert len({start.host for start in starts}) == 1
    folder = Workspace(user.workspace)
    assert all((folder.run(run_id).logs(1) / "rank-0.log").exists() for run_id in ids(user))
    # It was tried again in place: no second job.
    wait_for(lambda: user.accounted("State") == ["COMPLETED"])


@pytest.mark.long
def test_two_runs_of_four_gpus_share_a_node(user: SlurmUser) -> None:
    resources = "gpus_per_node: 4"
    text = (
        slurm_grid(seeds="2", train="virtual_ranks: 4")
        .replace("gpus_per_node: 1", resources)
        .replace(*WHOLE)
    )
    assert "2 completed" in user.submit(text, "--wait")
    starts = [start_of(user, run_id) for run_id in ids(user)]
    assert sorted(start.gpus for start in starts) == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]
    assert [start.world_size for start in starts] == [4, 4]


def test_four_runs_share_two_gpus_of_a_node_that_others_use_too(user: SlurmUser) -> None:
    text = slurm_grid(seeds="4", resources="per_gpu: 2, pack: 4")
    assert "4 runs at a time, 1/2 GPU each" in user.ok("plan", user.write("grid.yaml", text))
    assert "4 completed" in user.submit(text, "--wait")
    starts = [start_of(user, run_id) for run_id in ids(user)]
    assert sorted(gpu for start in starts for gpu in start.gpus) == ["0", "0", "1", "1"]
    assert len({start.host for start in starts}) == 1


NO_MODULE = """setup: ['[ $SLURMD_NODENAME != gpu0 ] || { echo "no module cudnn/9"; exit 127; }']"""


def test_a_node_where_no_agent_can_start_is_avoided_after_two_jobs(user: SlurmUser) -> None:
    user.submit(slurm_grid(seeds="3", site=NO_MODULE))
    said = wait_for(
        lambda: [
            line
            for line in user("supervise", "--once").stderr.splitlines()
            if "jobs avoid gpu0" in line
        ]
    )
    assert "no module cudnn/9" in said[0]
    user.wait_states({"completed": 3})
    for run_id in ids(user):
        *swallowed, last = user.show(run_id)["attempts"]
        assert last["host"] in ("gpu1", "gpu2", "gpu3")
        # One may have been submitted again before the second showed what is wrong.
        assert 1 <= len(swallowed) <= 2
        for attempt in swallowed:
            assert (attempt["host"], attempt["failure"]) == ("gpu0", "not_submitted")
            assert attempt["error"].endswith("no module cudnn/9")


def test_what_waits_already_is_kept_off_a_bad_node_too(
    user: SlurmUser, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    other = slurm.submit("sleep 300", "--partition=whole", "--nodes=4", "--exclusive")
    slurm.wait_state(other, "RUNNING")
    user.submit(slurm_grid(seeds="3", site="exclude: gpu3"))
    (line,) = [line for line in user.queue("%F|%j") if not line.startswith(f"{other}|")]
    job, token = line.split("|")
    exclude({job: token}, ["gpu0"], deadline_s=15.0)
    assert "gpu[0,3]" in user.queue("%x")
    slurm.ask("scancel", other)
    user.wait_states({"completed": 3})
    assert {start_of(user, run_id).host for run_id in ids(user)} <= {"gpu1", "gpu2"}


@pytest.mark.paper("OR-06")
@with_accounting
def test_a_run_spans_two_nodes(user: SlurmUser) -> None:
    text = slurm_grid(train="virtual_ranks: 2", resources="nodes: 2")
    assert "1 completed" in user.submit(text, "--wait")
    (run_id,) = ids(user)
    assert start_of(user, run_id).world_size == 2
    attempt = Workspace(user.workspace).run(run_id).attempt(1)
    assert sorted(path.name for path in attempt.glob("journal-*.jsonl")) == [
        "journal-0.jsonl",
        "journal-1.jsonl",
    ]
    wait_for(lambda: user.accounted("NNodes,State") == ["2|COMPLETED"])


@pytest.mark.paper("DR-40", "OR-06")
@pytest.mark.long
def test_a_run_has_a_node_of_eight_gpus(user: SlurmUser) -> None:
    text = slurm_grid(train="virtual_ranks: 8").replace("gpus_per_node: 1", "gpus_per_node: 8")
    assert "1 completed" in user.submit(text, "--wait")
    (run_id,) = ids(user)
    assert start_of(user, run_id).world_size == 8
    assert start_of(user, run_id).gpus == [str(gpu) for gpu in range(8)]


STAGES = """\
stages:
  - {name: pretrain, heads: [relvit]}
  - {name: finetune, heads: [supervised], init_from: pretrain}
"""


def stage(user: SlurmUser, name: str) -> str:
    (found,) = [run["run_id"] for run in user.runs() if run["stage"] == name]
    return str(found)


def test_a_stage_is_queued_behind_the_job_of_its_parent(user: SlurmUser) -> None:
    user.submit(slurm_grid(more=STAGES))
    assert user.states().get("pending", 0) == 0
    assert len([line for line in user.queue("%E") if line.startswith("afterany:")]) == 1
    user.wait_states({"completed": 2})
    assert {run["attempts"] for run in user.runs()} == {1}


def test_a_stage_waits_for_all_the_jobs_that_its_parent_takes(user: SlurmUser) -> None:
    user.submit(slurm_grid(more=STAGES, epochs=ENDLESS))
    parent = Workspace(user.workspace).run(stage(user, "pretrain"))
    wait_for(lambda: "epoch" in journal_of(parent.journal(1, 0)))
    (first,) = user.cluster.ask("squeue", "-h", "-t", "running", "-o", "%A").split()
    # As SLURM does when the walltime is near.
    user.cluster.ask("scancel", "--signal=USR2", first)
    wait_for(lambda: read_attempt(parent, 2).start is not None)
    (second,) = user.cluster.ask("squeue", "-h", "-t", "running", "-o", "%A").split()
    waiting = user.cluster.ask("squeue", "-h", "-t", "pending", "-o", "%E")
    assert f"afterany:{second}(unfulfilled)" in waiting
    # What is handed on has not failed.
    job = user.cluster.ask("scontrol", "-o", "show", "job", first)
    assert "JobState=COMPLETED" in job
    assert f"Comment=vtjobs: handed on to job {second}" in job
    user.ok("cancel", "all")


def journal_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.long
def test_a_stage_whose_parent_did_not_complete_ends_at_no_cost_and_comes_again(
    user: SlurmUser,
) -> None:
    user.submit(slurm_grid(more=STAGES, epochs=6))
    parent, child = stage(user, "pretrain"), stage(user, "finetune")
    wait_for(user.agents)
    os.kill(user.agents()[0], signal.SIGKILL)
    # No command looks: the child's agent finds an unfinished parent.
    wait_for(lambda: read_attempt(Workspace(user.workspace).run(child), 1).end is not None)
    assert "2 completed" in user.submit(slurm_grid(more=STAGES, epochs=6), "--wait")
    assert user.ends(parent)[-1] == ("completed", None)
    assert user.ends(child) == [("superseded", "skipped"), ("completed", None)]
    assert not (Workspace(user.workspace).run(child).path / "claims" / "0001").exists()


def test_a_stage_whose_parent_failed_for_good_is_blocked(user: SlurmUser) -> None:
    # An installation that is mended before the child starts: only the parent could not.
    broken = (
        "import os; os.unlink(__file__); raise ImportError('libcudart.so.12: cannot open shared"
        " object file')"
    )
    (user.folder / "torch.py").write_text(broken)
    user.submit(slurm_grid(more=STAGES, site=f'setup: ["export PYTHONPATH={user.folder}"]'))
    user.wait_states({"failed": 1, "blocked": 1})
    wait_for(lambda: user.queue() == [])
    assert user.states() == {"failed": 1, "blocked": 1}
    assert user.ends(stage(user, "finetune")) == [("superseded", "skipped")]
    answer = user.why(stage(user, "finetune"))
    assert (answer["verdict"], answer["action"]) == (
        "act",
        f"vtjobs why {stage(user, 'pretrain')[:8]}",
    )


@pytest.mark.long
@with_accounting
def test_a_run_is_not_tried_again_on_the_node_that_died_under_it(user: SlurmUser) -> None:
    text = slurm_grid(epochs=ENDLESS)
    user.submit(text)
    wait_for(lambda: user.states() == {"running": 1})
    (run_id,) = ids(user)
    node = start_of(user, run_id).host
    user.cluster.kill(node, steps=True)
    wait_for(lambda: user.states() and user.ends(run_id)[0] == ("node_fail", "hardware"))
    assert user.source(run_id, "node_fail") in ("squeue", "sacct")
    # Looking has seen the end; a pass tries the run again.
    user.ok("supervise", "--once")
    wait_for(lambda: len(user.accounted("SubmitLine")) == 2)
    assert f"--exclude={node}" in user.accounted("SubmitLine")[-1]
    wait_for(lambda: user.states() == {"running": 1})
    assert start_of(user, run_id, 2).host != node
    user.ok("cancel", "all")

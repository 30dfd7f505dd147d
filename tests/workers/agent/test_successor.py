"""What an agent hands on when its walltime is near, and what becomes of a refused submission."""

import json
from pathlib import Path

import pytest

from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.workers.agent import successor
from vtjobs.workers.agent.attempt import HostedRun
from vtjobs.workers.agent.lanes import Lane
from vtjobs.workers.agent.outcome import Outcome
from vtjobs.workers.agent.successor import hand_on_stopped, submit_unsent, unsent_files

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab


def test_a_run_that_never_started_is_still_to_start_from_nothing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    waiting = Task(run_id="ab" * 8, attempt=2, grid_id="g", clean=True)
    made = Allocation(
        token="vtj-1", created_at=1.0, shape=Shape(backend="local"), lanes=1, tasks=((waiting,),), data_root="/none",
        argv=("true", "{token}"),
    )  # fmt: skip
    token = hand_on_stopped(workspace, made, [], [waiting])
    assert token is not None
    handed_on = Allocation.from_dict(read_json(workspace.allocation(token)))
    assert [(task.attempt, task.clean) for task in handed_on.all_tasks] == [(3, True)]


def test_what_was_cancelled_or_taken_over_meanwhile_is_not_handed_on(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    mine, cancelled, taken = (
        Task(run_id=word * 8, attempt=2, grid_id="g") for word in ("aa", "bb", "cc")
    )
    workspace.run(cancelled.run_id).cancel(2)
    workspace.run(taken.run_id).claim(3)
    made = Allocation(
        token="vtj-1", created_at=1.0, shape=Shape(backend="local"), lanes=3, tasks=((mine, cancelled, taken),),
        data_root="/none", argv=("true", "{token}"),
    )  # fmt: skip
    token = hand_on_stopped(workspace, made, [], [mine, cancelled, taken])
    assert token is not None
    handed_on = Allocation.from_dict(read_json(workspace.allocation(token)))
    assert [task.run_id for task in handed_on.all_tasks] == [mine.run_id]


def stopped_at_walltimes(lab: Lab, *, times: int) -> Allocation | None:
    """Let walltimes end a run so often before a new checkpoint; return what is handed on then."""
    (run_id,) = lab.submit(tiny_grid(seeds="1"))
    allocation = changed(lab.allocate([run_id]), argv=("true", "{token}"))
    (task,) = allocation.all_tasks
    for number in range(1, times + 1):
        journal(lab, run_id, number, started(attempt=number), ended("timeout", "walltime"))
    task = changed(task, attempt=times)
    hosted = HostedRun(lab.context.workspace, allocation, task, Lane(index=0), None)
    hosted.ended = Outcome(state=AttemptState.TIMEOUT, failure=FailureClass.WALLTIME)
    token = hand_on_stopped(lab.context.workspace, allocation, [hosted], [])
    return (
        None
        if token is None
        else Allocation.from_dict(read_json(lab.context.workspace.allocation(token)))
    )


@pytest.mark.parametrize("times", [1, 2])
def test_a_run_without_a_new_checkpoint_is_handed_on_while_the_policy_lets_it(
    quiet_lab: Lab, times: int
) -> None:
    handed_on = stopped_at_walltimes(quiet_lab, times=times)
    assert handed_on is not None
    assert [task.attempt for task in handed_on.all_tasks] == [times + 1]


def test_three_walltimes_without_a_new_checkpoint_stop_a_run_with_that_reason(
    quiet_lab: Lab,
) -> None:
    assert stopped_at_walltimes(quiet_lab, times=3) is None


def test_jobs_in_a_row_that_could_not_start_their_runs_are_counted(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    waiting = Task(run_id="ab" * 8, attempt=2, grid_id="g")
    made = Allocation(
        token="vtj-1", created_at=1.0, shape=Shape(backend="local"), lanes=1, tasks=((waiting,),), data_root="/none",
        argv=("true", "{token}"), unstarted=1,
    )  # fmt: skip
    token = hand_on_stopped(workspace, made, [], [waiting])
    assert token is not None
    assert Allocation.from_dict(read_json(workspace.allocation(token))).unstarted == 2


def refused(workspace: Workspace, run_id: str, command: list[str]) -> Path:
    """Leave a submission of one run that the scheduler did not take."""
    token = f"vtj-{run_id}"
    made = Allocation(
        token=token, created_at=1.0, shape=Shape(backend="local"), lanes=1, data_root="/none",
        tasks=((Task(run_id=run_id, attempt=2, grid_id="g"),),), argv=("true", "{token}"),
    )  # fmt: skip
    workspace.allocation(token).write_text(json.dumps(made.to_dict()))
    path = workspace.unsent(token)
    path.write_text(json.dumps({"backend": "local", "command": command}))
    return path


def test_a_refused_submission_is_tried_again_and_kept_while_it_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    path = refused(workspace, "aa" * 8, ["false"])
    submit_unsent(workspace, "local")
    assert unsent_files(workspace) == [path]
    path.write_text(json.dumps({"backend": "local", "command": ["true"]}))
    submit_unsent(workspace, "local")
    assert unsent_files(workspace) == []


def test_what_an_agent_died_over_is_submitted_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path).create()
    taken = successor.take_unsent(refused(workspace, "aa" * 8, ["touch", f"{tmp_path}/sent"]))
    assert taken is not None
    # Another agent may be at it.
    submit_unsent(workspace, "local")
    assert not (tmp_path / "sent").exists()
    monkeypatch.setattr(successor, "SENDING_S", 0.0)
    submit_unsent(workspace, "local")
    assert (tmp_path / "sent").exists()
    assert unsent_files(workspace) == []


@pytest.mark.parametrize("ended", ["cancelled", "claimed"])
def test_a_refused_submission_that_nobody_wants_any_more_is_dropped(
    tmp_path: Path, ended: str
) -> None:
    workspace = Workspace(tmp_path).create()
    refused(workspace, "aa" * 8, ["touch", f"{tmp_path}/sent"])
    run = workspace.run("aa" * 8)
    _ = run.cancel(2) if ended == "cancelled" else run.claim(2)
    submit_unsent(workspace, "local")
    assert not (tmp_path / "sent").exists()
    assert unsent_files(workspace) == []


def test_a_damaged_submission_keeps_no_other_from_being_tried(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    refused(workspace, "aa" * 8, []).write_text("")
    refused(workspace, "bb" * 8, ["touch", f"{tmp_path}/sent"])
    submit_unsent(workspace, "local")
    assert (tmp_path / "sent").exists()


def gives_way(workspace: Workspace, other: str, command: list[str]) -> Path:
    """Leave a submission that waits until another allocation has begun; that one is refused too."""
    refused(workspace, other, ["true"]).unlink()
    path = refused(workspace, "aa" * 8, [])
    path.write_text(
        json.dumps({"backend": "local", "command": command, "gives_way_to": f"vtj-{other}"})
    )
    return path


def test_what_gave_way_is_submitted_once_the_other_one_has_begun(tmp_path: Path) -> None:
    workspace, other = Workspace(tmp_path).create(), "bb" * 8
    path = gives_way(workspace, other, ["touch", f"{tmp_path}/sent"])
    submit_unsent(workspace, "local")
    assert unsent_files(workspace) == [path], "its neighbours end before the other one begins"
    workspace.run(other).claim(2)
    submit_unsent(workspace, "local")
    assert (tmp_path / "sent").exists() and unsent_files(workspace) == []


def test_an_agent_that_begins_submits_what_gave_way_to_it_and_nothing_else(tmp_path: Path) -> None:
    workspace, other = Workspace(tmp_path).create(), "bb" * 8
    gives_way(workspace, other, ["touch", f"{tmp_path}/sent"])
    kept = refused(workspace, "cc" * 8, ["true"])
    submit_unsent(workspace, "local", after_start_of="vtj-" + "dd" * 8)
    assert not (tmp_path / "sent").exists()
    submit_unsent(workspace, "local", after_start_of=f"vtj-{other}")
    assert (tmp_path / "sent").exists() and unsent_files(workspace) == [kept]

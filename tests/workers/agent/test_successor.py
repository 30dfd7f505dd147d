"""What an agent hands on when its walltime is near."""

from pathlib import Path

from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.workers.agent.successor import hand_on_stopped


def test_a_run_that_never_started_is_still_to_start_from_nothing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    waiting = Task(run_id="ab" * 8, attempt=2, grid_id="g", clean=True)
    made = Allocation(
        token="vtj-1", created_at=1.0, shape=Shape(backend="local"), lanes=1, tasks=((waiting,),), data_root="/none",
        argv=("true", "{token}"),
    )  # fmt: skip
    token = hand_on_stopped(workspace, made, [], [waiting])
    assert token is not None
    successor = Allocation.from_dict(read_json(workspace.allocation(token)))
    assert [(task.attempt, task.clean) for task in successor.all_tasks] == [(3, True)]


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
    successor = Allocation.from_dict(read_json(workspace.allocation(token)))
    assert [task.run_id for task in successor.all_tasks] == [mine.run_id]

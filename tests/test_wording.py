"""No decision depends on the wording of our own messages: reworded, everything stays as it was."""

import ast
import os
import signal
import subprocess
from pathlib import Path

import pytest

from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.orchestrator.backends.slurm import shell, submission
from vtjobs.workers.agent.outcome import KillCause, Killed, Outcome, judge_ranks
from vtjobs.workers.agent.rank_process import RankProcess
from vtjobs.workers.ranks.failure import classify
from vtjobs.workers.ranks.gate import NotReached

from .support.bad_grids import with_line

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("analysis", "commands", "db", "jobs", "orchestrator", "web", "workers")
WORDINGS = ("", "no progress for 3 s", "node 3: gone", "did not stop in time", "reworded")


def ended(status: int) -> RankProcess:
    return RankProcess(0, "0", os.O_RDONLY, os.O_RDONLY, os.O_RDONLY, pid=1, status=status)


def judged(cause: KillCause, text: str, stopping: AttemptState | None) -> Outcome:
    rank = ended(-signal.SIGKILL)
    rank.killed = True
    return judge_ranks([rank], [], stopping=stopping, killed=Killed(cause, text))


@pytest.mark.parametrize("stopping", [None, AttemptState.TIMEOUT, AttemptState.CANCELLED])
@pytest.mark.parametrize("cause", KillCause)
def test_an_end_is_judged_by_why_ranks_were_killed_and_not_by_the_text(
    cause: KillCause, stopping: AttemptState | None
) -> None:
    ends = {(one.state, one.failure) for one in (judged(cause, t, stopping) for t in WORDINGS)}
    assert len(ends) == 1


def test_a_hang_and_a_lost_node_are_different_classes_under_one_text() -> None:
    found = [judged(cause, "x", None).failure for cause in (KillCause.HANG, KillCause.PEER)]
    assert found == [FailureClass.HANG, FailureClass.COMMUNICATION]


@pytest.mark.parametrize("text", WORDINGS)
def test_a_rank_that_reaches_nobody_has_a_communication_failure(text: str) -> None:
    assert classify(NotReached(text)) is FailureClass.COMMUNICATION


def test_a_slurm_that_does_not_answer_has_not_agreed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("sbatch", 1.0)

    monkeypatch.setattr(shell.subprocess, "run", silent)
    monkeypatch.setattr(submission, "submission", lambda *_: [])
    with pytest.raises(shell.SchedulerUnreachable):
        submission.rehearse(None, None, deadline_s=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("train", "key"),
    [
        ("{loss: cross_entropy, bce_threshold: 0.1}", "train.bce_threshold"),
        ("{crop: none, crop_scale: [1.0, 0.5]}", "train.crop_scale"),
        ("{lr: 0.1, min_lr: no}", "train.min_lr"),
    ],
)
def test_a_mistake_in_a_recipe_is_placed_at_its_own_key(
    train: str, key: str, tmp_path: Path
) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(with_line("train", train))
    with pytest.raises(Exception, match=rf": {key}: "):
        take_in(str(path))


# Functions that read what other programs say: SLURM, Ray, torch, the file system, YAML.
FOREIGN = {
    "db/engine.py",
    "jobs/strict_yaml.py",
    "workers/checkpoints/weights.py",
    "workers/data/datasets.py",
    "workers/models/backbones.py",
    "workers/ranks/failure.py",
}


def test_no_module_searches_the_text_of_an_exception_of_ours() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if reads_a_message(node)
    }
    assert found <= FOREIGN


def reads_a_message(node: ast.AST) -> bool:
    """Return whether a node compares, searches or cuts `str(error)`."""
    match node:
        case ast.Compare():
            return any(is_message(part) for part in (node.left, *node.comparators))
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "split" | "partition")):
            return is_message(node.func.value)
        case ast.Call(func=ast.Attribute(attr="search" | "match")):
            return any(is_message(argument) for argument in node.args)
    return False


def is_message(node: ast.AST) -> bool:
    """Return whether an expression is `str(error)`, perhaps in lower case."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="lower")):
            return is_message(inner)
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id="error")]):
            return True
    return False

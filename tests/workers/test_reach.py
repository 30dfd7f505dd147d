"""What a node sees of its scheduler, and who asks."""

import time
from pathlib import Path

import pytest

from vtjobs.jobs.config.node import OnNode
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.jobs.workspace.reach import Reach, note_reach, read_reach
from vtjobs.workers import reach
from vtjobs.workers.reach import inquiry, take_answer

from ..support.lab import wait_for

BACKEND = "far"


class Node(OnNode):
    """A node whose question is a line of shell."""

    def __init__(self, line: str, *, submits: bool = True) -> None:
        self.line, self.can_submit = line, submits

    def host(self) -> str:
        return "gpu0"

    def submits(self) -> bool:
        return self.can_submit

    def question(self) -> list[str]:
        return ["sh", "-c", self.line]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs").create()


def seen(workspace: Workspace, node: OnNode) -> Reach:
    """Ask, and return what is written down."""
    asked = inquiry(workspace, BACKEND, node)
    assert asked is not None
    wait_for(lambda: take_answer(asked, workspace, BACKEND) is None)
    found = read_reach(workspace, BACKEND)
    assert found is not None
    return found


def test_an_answer_is_written_down(workspace: Workspace) -> None:
    assert read_reach(workspace, BACKEND) is None
    found = seen(workspace, Node("exit 0"))
    assert (found.host, found.answers) == ("gpu0", True)
    assert abs(found.at - time.time()) < 60


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Node("echo first >&2; echo 'controller is away' >&2; exit 1"), "controller is away"),
        (Node("exit 3"), "exit code 3"),
        (Node("exit 0", submits=False), "no command to submit with"),
    ],
)
def test_no_answer_is_written_down_with_its_reason(
    workspace: Workspace, node: Node, reason: str
) -> None:
    found = seen(workspace, node)
    assert (found.answers, found.reason) == (False, reason)


def test_a_scheduler_that_hangs_is_left_after_some_time_and_holds_nobody_up(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough that a busy machine has not used it up before the first look.
    monkeypatch.setattr(reach, "DEADLINE_S", 3.0)
    began = time.monotonic()
    asked = inquiry(workspace, BACKEND, Node("exec sleep 600"))
    assert take_answer(asked, workspace, BACKEND) is asked
    assert time.monotonic() - began < 3.0
    wait_for(lambda: take_answer(asked, workspace, BACKEND) is None)
    found = read_reach(workspace, BACKEND)
    assert found is not None and found.reason.startswith("no answer within")


@pytest.mark.parametrize(
    ("age_s", "reason", "asks"), [(60.0, "", False), (90_000.0, "", True), (60.0, "away", True)]
)
def test_what_answered_lately_is_not_asked_again(
    workspace: Workspace, age_s: float, reason: str, asks: bool
) -> None:
    note_reach(workspace, BACKEND, Reach(at=time.time() - age_s, host="gpu1", reason=reason))
    assert (inquiry(workspace, BACKEND, Node("exit 0")) is not None) is asks


def test_where_there_is_nothing_to_ask_nobody_asks(workspace: Workspace) -> None:
    assert inquiry(workspace, "local", OnNode()) is None

"""Have a worker's tool answer in the test's own process, which has imported torch already."""

import contextlib
import importlib
import io
import json
from dataclasses import dataclass
from typing import Any

import pytest

from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.grid import model_names
from vtjobs.orchestrator.requests import backbone_check
from vtjobs.orchestrator.views import costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """How a tool ended."""

    returncode: int
    stdout: str
    stderr: str


def call_here(name: str, *words: str, given: str = "") -> Called:
    """Call a tool as its command line does, without the seconds that a new process needs."""
    tool = importlib.import_module(f"vtjobs.workers.tools.{name}")
    out, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        patch.setattr("sys.argv", [name, *words])
        patch.setattr("sys.stdin", io.StringIO(given))
        code = tool.main()
    return Called(returncode=code, stdout=out.getvalue(), stderr=errors.getvalue())


def ask_here(name: str, question: Any, *, timeout_s: float) -> Any:
    """Answer as `ask_tool` does, without the seconds that a new process needs for its imports."""
    del timeout_s
    done = call_here(name, given=json.dumps(to_plain(question)))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def answer_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every question about models answered in this process."""
    monkeypatch.setattr(backbone_check, "ask_tool", ask_here)
    monkeypatch.setattr(model_names, "ask_tool", ask_here)
    monkeypatch.setattr(costs, "ask_tool", ask_here)

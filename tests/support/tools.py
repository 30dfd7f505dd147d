"""Have a worker's tool answer in the test's own process, which has imported torch already."""

import contextlib
import importlib
import io
import json
from typing import Any

import pytest

from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.grid import model_names
from vtjobs.orchestrator.requests import backbone_check
from vtjobs.orchestrator.views import costs


def ask_here(name: str, question: Any, *, timeout_s: float) -> Any:
    """Answer as `ask_tool` does, without the seconds that a new process needs for its imports."""
    del timeout_s
    tool = importlib.import_module(f"vtjobs.workers.tools.{name}")
    answer = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(answer):
        patch.setattr("sys.stdin", io.StringIO(json.dumps(to_plain(question))))
        assert tool.main() == 0
    return json.loads(answer.getvalue())


def answer_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every question about models answered in this process."""
    monkeypatch.setattr(backbone_check, "ask_tool", ask_here)
    monkeypatch.setattr(model_names, "ask_tool", ask_here)
    monkeypatch.setattr(costs, "ask_tool", ask_here)

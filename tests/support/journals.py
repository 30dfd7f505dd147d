"""Journals written by hand, as an agent would write them."""

import time
from typing import Any

from vtjobs.jobs.workspace.journal import JournalWriter

from .lab import Lab


def journal(
    lab: Lab,
    run_id: str,
    attempt: int,
    *events: tuple[str, dict[str, Any]],
    at: float | None = None,
) -> None:
    """Write the whole journal of an attempt: (kind, fields), in order."""
    OpenJournal(lab, run_id, attempt).write(*events, at=at).close()


class OpenJournal:
    """The journal of an attempt that goes on."""

    def __init__(self, lab: Lab, run_id: str, attempt: int) -> None:
        folder = lab.run(run_id).attempt(attempt)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._writer = JournalWriter(folder / "journal-0.jsonl")

    def write(self, *events: tuple[str, dict[str, Any]], at: float | None = None) -> "OpenJournal":
        """Write events: (kind, fields), in order."""
        for kind, fields in events:
            self._writer.write(kind, at=time.time() if at is None else at, **fields)
        return self

    def close(self) -> None:
        self._writer.close()


def started(**fields: Any) -> tuple[str, dict[str, Any]]:
    plain = {
        "attempt": 1,
        "host": "h1",
        "resumed_attempt": None,
        "resumed_step": None,
        "world_size": 1,
        "exact": None,
    }
    return "start", {**plain, **fields}


def ended(
    state: str, failure: str | None = None, *, signature: str = "", **fields: Any
) -> tuple[str, dict[str, Any]]:
    plain = {"error": "", "exit_code": 0, "rank": None, "epoch": 1, "step": 8}
    return "end", {"state": state, "class": failure, "signature": signature, **plain, **fields}


def scored(top1: float, *, epoch: int = 1) -> tuple[str, dict[str, Any]]:
    metrics = {"top1": top1, "top5": 100.0, "loss": 0.1, "n": 898.0}
    return "evaluation", {"epoch": epoch, "step": 8 * epoch, "set": "test", "metrics": metrics}

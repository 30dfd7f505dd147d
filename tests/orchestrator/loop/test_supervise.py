"""A supervisor in a process of its own, as a user starts it."""

import signal
import threading
import time
from pathlib import Path

import pytest

from vtjobs.db.scheduler_notes import Away
from vtjobs.jobs.errors import LedgerUnreachable, VtjobsError
from vtjobs.orchestrator.loop import supervise as module
from vtjobs.orchestrator.loop.supervise import alone, describe, supervise
from vtjobs.orchestrator.loop.tick import Report

from ...support.cli import Cli
from ...support.grids import tiny_grid
from ...support.lab import Lab, wait_for

pytestmark = pytest.mark.training


def ends(workspace: Path) -> int:
    """Count the runs with a completed attempt, from the journals alone.

    No other command runs meanwhile.
    """
    found = workspace.glob("??/*/attempts/*/journal-0.jsonl")
    return sum(b'"state":"completed"' in path.read_bytes() for path in found)


def test_a_supervisor_brings_a_grid_to_its_end_alone_and_leaves_on_term(cli: Cli) -> None:
    cli.write("grid.yaml", tiny_grid(seeds="3", extra="max_running: 1"))
    cli.ok("submit", "grid.yaml", "--hold")
    # A release would start the queue, whose own passes need no supervisor.
    (hold,) = (cli.workspace / "grids").glob("*/hold.json")
    hold.unlink()
    process = cli.start("supervise", "--every", "1")
    try:
        wait_for(lambda: process.poll() is not None or ends(cli.workspace) == 3, 180)
        refused = cli("supervise")
        assert (
            refused.returncode,
            "another `vtjobs supervise` is running on this host" in refused.stderr,
        ) == (1, True)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert time.monotonic() - began < 20
    assert "1 started" in err and "Traceback" not in err
    assert cli.json("status")["runs"]["completed"] == 3


def test_one_pass_is_one_pass(cli: Cli) -> None:
    cli.write("grid.yaml", tiny_grid(seeds="2"))
    cli.ok("submit", "grid.yaml", "--hold")
    cli.ok("supervise", "--once")
    assert cli.json("status")["runs"]["pending"] == 2
    cli.ok("release", "all")
    began = time.monotonic()
    done = cli("supervise", "--once")
    assert done.returncode == 0 and time.monotonic() - began < 25
    cli.ok("cancel", "all")


def test_a_supervisor_needs_a_workspace(cli: Cli) -> None:
    done = cli("supervise")
    assert done.returncode == 5 and "not a vtjobs workspace" in done.stderr
    assert not cli.workspace.exists()


def test_a_supervisor_is_alone_until_it_leaves(quiet_lab: Lab) -> None:
    with (
        alone(quiet_lab.context),
        pytest.raises(VtjobsError, match="another `vtjobs supervise`"),
        alone(quiet_lab.context),
    ):
        pass
    with alone(quiet_lab.context):
        pass


def test_what_goes_wrong_outside_is_told_once_waited_out_and_ends_nothing(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, said, passes = threading.Event(), [], []

    def away(context: object) -> Report:
        passes.append(time.monotonic())
        if len(passes) == 4:
            stop.set()
        if len(passes) < 3:
            raise LedgerUnreachable("the ledger does not answer")
        return Report()

    monkeypatch.setattr(module, "tick", away)
    monkeypatch.setattr(module, "BACK_OFF_S", (0.01, 0.05))
    supervise(quiet_lab.context, stop, said.append, every_s=0.01)
    assert len(passes) == 4
    (line,) = said
    assert line.endswith("LedgerUnreachable: the ledger does not answer")


def test_a_pass_is_told_where_it_did_anything() -> None:
    assert describe(Report(events=5)) == ""
    away = {"slurm": Away(1.0, "no answer")}
    told = describe(Report(launched=2, ended=1, unreachable=away, problems=["tiny: stopped"]))
    assert (
        told
        == "2 started; 1 ended without an end record; slurm unreachable (no answer); tiny: stopped"
    )

"""A grid on this machine goes on with nobody there."""

from pathlib import Path

import pytest

from vtjobs.orchestrator.loop.keep import is_needed
from vtjobs.orchestrator.loop.tick import tick
from vtjobs.orchestrator.requests import actions

from ...support import unattended
from ...support.cli import Cli
from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab, wait_for

pytestmark = pytest.mark.training

STAGES = """\
max_running: 2
retries: 5
stages:
  - {name: pretrain, heads: [{"faulty.py:Faulty": {weight: 0.1, faults: FAULTS}}]}
  - {name: finetune, heads: [supervised], init_from: pretrain}
"""


def test_retries_and_stages_start_with_no_command_after_the_submission(cli: Cli) -> None:
    cli.write("faulty.py", unattended.FAULTY)
    faults = cli.folder / "faults"
    faults.mkdir()
    (faults / "once").touch()
    text = tiny_grid(seeds="3", extra=STAGES.replace("FAULTS", str(faults)))
    cli.write("grid.yaml", text.replace("heads: [supervised]\n", "", 1))
    done = cli("submit", "grid.yaml")
    assert done.returncode == 0, done.stderr
    assert "go on without this terminal" in done.stderr and "Stop: vtjobs cancel" in done.stderr

    def counts() -> dict[str, int]:
        # It looks, and starts nothing.
        return {word: n for word, n in cli.json("status")["runs"].items() if n}

    wait_for(lambda: counts() == {"completed": 6}, 240)
    attempts = [run["attempts"] for run in cli.json("runs")]
    assert sum(attempts) == 7, "one try more for the fault"
    wait_for(lambda: not _serving(cli), 60)


def _serving(cli: Cli) -> bool:
    """Whether a process of the queue is still there."""
    return any(
        str(cli.workspace).encode() in path.read_bytes()
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists()
    )


@pytest.mark.parametrize(("held", "expected"), [(False, True), (True, False)])
def test_a_back_off_is_waited_for_unless_the_run_is_held(
    quiet_lab: Lab, held: bool, expected: bool
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    tick(quiet_lab.context)
    journal(quiet_lab, run_id, 1, started(), ended("failed", "storage"))
    if held:
        actions.hold(quiet_lab.context, [run_id])
    assert is_needed(quiet_lab.context, tick(quiet_lab.context)) is expected


def test_with_nothing_live_and_nothing_due_the_keeper_ends(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    assert is_needed(quiet_lab.context, tick(quiet_lab.context))
    journal(quiet_lab, run_id, 1, started(), ended("completed"))
    assert not is_needed(quiet_lab.context, tick(quiet_lab.context))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_sixty_runs_with_faults_stages_and_a_back_off_end_by_themselves(cli: Cli) -> None:
    unattended.submit(
        cli, backend=f"{{local: {{slots: {unattended.PLACES}}}}}", resources="gpus_per_node: 0"
    )
    unattended.check(cli)

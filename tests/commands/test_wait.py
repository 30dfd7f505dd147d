"""Waiting for runs that are stored already."""

import shlex
import signal

import pytest

from ..support.cli import Cli
from ..support.grids import tiny_grid


@pytest.fixture
def held(cli: Cli) -> Cli:
    """A workspace with two runs that nothing starts."""
    cli.ok("submit", cli.write("grid.yaml", tiny_grid()), "--hold")
    return cli


@pytest.mark.parametrize(
    "words", [("wait", "tiny"), ("submit", "grid.yaml", "--wait"), ("wait", "tiny", "-W", "./runs")]
)
def test_an_interrupted_wait_leaves_the_runs_alone_and_names_commands_that_work(
    held: Cli, words: tuple[str, ...]
) -> None:
    waiting = held.start(*words)
    assert waiting.stderr is not None
    lines = []
    while "completed (" not in (line := waiting.stderr.readline()):
        assert line, "it ended by itself"
        lines.append(line)
    assert lines[-1].startswith("2 runs on hold. Start: vtjobs release ")
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert "the runs go on" in said and said.endswith("interrupted\n")
    assert held.json("status")["runs"]["pending"] == 2
    counted, waited, cancelled = [
        shlex.split(line)[1:] for line in said.splitlines() if line.startswith("  vtjobs ")
    ]
    assert held(*counted).returncode == 0
    assert held(*cancelled).returncode == 0
    assert held(*waited).returncode == 4


def test_who_submits_a_held_grid_again_is_told_that_it_is_held(held: Cli) -> None:
    said = held("submit", "grid.yaml").stderr
    assert "2 runs on hold. Start: vtjobs release tiny-" in said
    assert "without this terminal" not in said


def test_a_wait_for_nothing_that_exists_is_refused(held: Cli) -> None:
    assert held("wait").returncode == 2
    assert held("wait", "nonsense").returncode == 3

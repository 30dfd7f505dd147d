"""What the shell's completion offers, asked as bash and zsh do."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..support.cli import Cli
from ..support.grids import tiny_grid


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Cli:
    """A user with a held grid of two heads and an axis."""
    user = Cli(tmp_path_factory.mktemp("held"), cache)
    grid = tiny_grid(heads="[supervised, relvit]", extra="axes: {train.lr: [0.001, 0.01]}")
    user.write("grid.yaml", grid)
    user.ok("submit", "grid.yaml", "--hold")
    return user


def offered(user: Cli, **asked: str) -> list[str]:
    """Return what the installed command offers; it must say nothing else."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "vtjobs")],
        cwd=user.folder, env=user.environment(**asked), text=True, capture_output=True,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.split()


def in_zsh(user: Cli, line: str) -> list[str]:
    """Return what is offered at the end of a line in a shell that keeps words whole."""
    return offered(
        user,
        _VTJOBS_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS=line,
    )


def in_bash(user: Cli, *words: str) -> list[str]:
    """Return what is offered for the last word, cut as bash does."""
    line = " ".join(["vtjobs", *words])
    return offered(
        user, _VTJOBS_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words))
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vtjobs runs head=", ["head=relvit", "head=supervised"]),
        ("vtjobs runs head!=re", ["head!=relvit"]),
        ("vtjobs runs head=relvit,", ["head=relvit,supervised"]),
        ("vtjobs runs train.lr=0.00", ["train.lr=0.001"]),
        ("vtjobs runs train", ["train.lr="]),
        ("vtjobs cancel ti", ["tiny", "tiny-"]),
    ],
)
def test_fields_and_values_are_those_that_exist(held: Cli, line: str, expected: list[str]) -> None:
    found = in_zsh(held, line)
    assert [word if not word.startswith("tiny-") else "tiny-" for word in found] == expected


def test_bash_gets_the_value_alone_since_it_replaces_just_that(held: Cli) -> None:
    assert in_bash(held, "runs", "head", "=") == ["relvit", "supervised"]
    assert in_bash(held, "runs", "head!", "=", "su") == ["supervised"]
    assert "all" in in_bash(held, "runs", "head", "=", "supervised", "")


def test_run_ids_are_completed(held: Cli) -> None:
    run_id = held.json("runs")[0]["run_id"]
    assert run_id[:8] in in_zsh(held, "vtjobs show ")
    assert in_zsh(held, f"vtjobs show {run_id[:5]}") == [run_id[:8]]
    assert in_zsh(held, f"vtjobs runs {run_id[:5]}") == [run_id[:8]]


def test_nothing_is_offered_and_nothing_is_made_where_there_is_no_workspace(cli: Cli) -> None:
    assert in_zsh(cli, "vtjobs runs head=") == []
    assert not cli.workspace.exists()

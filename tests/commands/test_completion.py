"""What the shell's completion offers: asked as shells do, and in the shells themselves."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..support import tmux
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


# What is kept -------------------------------------------------------------------------------------


def settle(user: Cli) -> None:
    """Let what was written be old enough to be kept."""
    for path in (user.workspace / "grids", user.workspace / "tags.jsonl"):
        if path.exists():
            os.utime(path, (time.time() - 60, time.time() - 60))


def test_an_answer_is_kept_and_needs_no_ledger(held: Cli) -> None:
    settle(held)
    first = in_zsh(held, "vtjobs runs head=")
    ledger, away = held.workspace / "ledger.sqlite", held.workspace / "away.sqlite"
    ledger.rename(away)
    try:
        assert in_zsh(held, "vtjobs runs head=") == first == ["head=relvit", "head=supervised"]
    finally:
        away.rename(ledger)


def test_a_new_grid_and_a_new_tag_are_offered_at_once(held: Cli) -> None:
    settle(held)
    assert "later" not in in_zsh(held, "vtjobs cancel l")
    held.write("later.yaml", tiny_grid().replace("name: tiny", "name: later"))
    held.ok("submit", "later.yaml", "--hold")
    settle(held)
    assert "later" in in_zsh(held, "vtjobs cancel l")
    held.ok("tag", "later", "--add", "paper")
    assert in_zsh(held, "vtjobs runs tag=") == ["tag=paper"]
    assert in_zsh(held, "vtjobs tag later --remove ") == ["paper"]


def test_a_kept_answer_that_is_damaged_is_made_anew(held: Cli) -> None:
    settle(held)
    in_zsh(held, "vtjobs runs head=")
    for kept in held.folder.rglob("completion/*.json"):
        kept.write_text('{"stamp"')
    assert in_zsh(held, "vtjobs runs head=re") == ["head=relvit"]


@pytest.mark.parametrize("typed", ["/no/such", "a**", "[", "gri"])
def test_whatever_is_typed_for_a_grid_file_prints_no_error(held: Cli, typed: str) -> None:
    assert in_zsh(held, f"vtjobs submit {typed}") == (["grid.yaml"] if typed == "gri" else [])


def test_grid_files_of_another_folder_are_offered(held: Cli) -> None:
    assert in_zsh(held, f"vtjobs submit {held.folder}/gr") == [f"{held.folder}/grid.yaml"]


def test_every_state_is_offered(held: Cli) -> None:
    assert in_zsh(held, "vtjobs runs state=c") == ["state=cancelled", "state=completed"]


# Shells -------------------------------------------------------------------------------------------


def script(user: Cli, shell: str) -> Path:
    """Return what `--install-completion` installs for a shell."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "vtjobs"), "--show-completion", shell],
        env=user.environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"),
        text=True, capture_output=True, check=True, cwd=user.folder,
    )  # fmt: skip
    path = user.folder / f"completion.{shell}"
    path.write_text(done.stdout)
    return path


def said(user: Cli, *command: str) -> list[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=user.folder, env=user.environment(PATH=path), text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_bash_itself_completes_a_value(held: Cli) -> None:
    ask = (
        f". {script(held, 'bash')}; COMP_WORDS=(vtjobs runs head = re); COMP_CWORD=4;"
        " _vtjobs_completion vtjobs; echo ${COMPREPLY[@]}"
    )
    assert said(held, "bash", "--norc", "-c", ask) == ["relvit"]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_itself_completes_a_value(held: Cli) -> None:
    ask = f"source {script(held, 'fish')}; complete -C 'vtjobs runs head=re'"
    assert said(held, "fish", "--no-config", "-c", ask) == ["head=relvit"]


@pytest.mark.skipif(not (shutil.which("zsh") and tmux.is_there()), reason="needs zsh and tmux")
def test_zsh_itself_completes_a_value(held: Cli) -> None:
    with tmux.a_terminal(held.folder, held.environment()) as terminal:
        terminal.enter("PS1='%# ' zsh -f")
        terminal.type(f"autoload -Uz compinit && compinit -u && . {script(held, 'zsh')}; clear")
        terminal.press("Enter")
        terminal.type("vtjobs runs head=re")
        terminal.press("Tab")
        assert "head=relvit" in terminal.until("relvit")

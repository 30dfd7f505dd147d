"""Bad input at the command line.

Exit code 2, one line that names file, line, key and fix, and nothing done.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .support.bad_grids import GOOD, with_line
from .support.cli import Cli
from .support.grids import tiny_grid

HERE = "grid.yaml"


def refused(cli: Cli, *words: str, code: int = 2, **env: str) -> str:
    """Run a command that must be refused; return what it said."""
    before = sorted(path.name for path in cli.folder.iterdir())
    done = cli(*words, **env)
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in cli.folder.iterdir()) == before, (
        "a refused command leaves nothing behind"
    )
    return done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "grid.yaml: empty. For a grid file to start from: vtjobs init new-grid.yaml"),
        ("name: [a, b\n", "grid.yaml:1: '[' opened here is never closed"),
        (with_line("seeds", "2\nseeds: 3"), "grid.yaml:9: 'seeds' given twice (first at line 8)"),
        (with_line("backbone", "[vit_mini]"), "unknown key 'backbone'. Did you mean 'backbones'?"),
        (
            with_line("backbones", "[vit_minni]"),
            "unknown backbone 'vit_minni'. Did you mean 'vit_mini'?",
        ),
        (
            with_line("train", "{lr: 1e-3x}"),
            "grid.yaml:8: train.lr: expected a number, got text '1e-3x'",
        ),
        (with_line("name", "../../etc"), "grid.yaml:8: name: use letters, digits and . _ -"),
        (with_line("seeds", "0..4"), "seeds: write [0, …, 4] or {range: [0, 5]}"),
        (
            with_line("seeds", "1_000_000"),
            "grid.yaml:8: seeds: write plain decimal numbers, got 1_000_000",
        ),
        (
            with_line("resources", "{gpus_per_node: 0, walltime: 86400}"),
            "resources.walltime: 86400 is ambiguous",
        ),
        (
            with_line("resources", "{gpus_per_node: 9}"),
            "grid.yaml:8: resources.gpus_per_node: 9 requested, this",
        ),
        (
            with_line("resources", "{gpus_per_node: 0, nodes: 2}"),
            "2 nodes requested, this is one machine",
        ),
        (
            with_line("train", "{image_size: 4}"),
            "has a 1x1 token grid; head drloc needs at least 2x2",
        ),
    ],
)
def test_a_grid_with_a_mistake_is_refused_before_anything_exists(
    cli: Cli, text: str, says: str
) -> None:
    heads = "heads: [supervised, drloc: {weight: 0.5}]"
    cli.write(HERE, text.replace("heads: [supervised]", heads))
    said = refused(cli, "submit", HERE)
    assert said.startswith("error: ")
    assert says in said
    assert len(said.splitlines()) == 1


def test_every_mistake_of_a_file_is_told_at_once_in_the_files_order(cli: Cli) -> None:
    cli.write(
        HERE,
        "name: a/b\n"
        "backbones: [vit_mini, swin_tt]\n"
        "datasets: [cifar11]\n"
        "heads: [supervised, {drlok: {weight: 1}}]\n"
        "seeds: [1, 1]\n"
        "recipe: quickstar\n"
        "retries: -1\n",
    )
    said = refused(cli, "plan", HERE).splitlines()
    assert [line.split(":")[2] for line in said] == ["1", "2", "3", "4", "5", "6", "7"]
    assert "Did you mean 'swin_t'?" in said[1]
    assert "Did you mean 'cifar10'?" in said[2]
    assert "Did you mean 'drloc'?" in said[3]
    assert "Did you mean 'quickstart'?" in said[5]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "train.epochs"], "write PATH=VALUE"),
        (["--set", "train.epochs=ten"], "expected a whole number, got text 'ten'"),
        (["--set", "=3"], "write PATH=VALUE"),
        (["--set", "seeds.range=3"], "seeds is not a mapping"),
        (["--set", "epochs=10"], "epochs: unknown key 'epochs'. Did you mean 'train.epochs'?"),
        (["--set", "train.walltime=1h"], "Did you mean 'resources.walltime'?"),
        (["--set", "resources.gpus=1"], "Did you mean 'gpus_per_node'?"),
        (["--set", "name=[1"], "'[' opened here is never closed"),
        (["--max-runs", "1"], "2 runs (limit 1; raise it with --max-runs)"),
        (["--max-runs", "0"], "--max-runs"),
    ],
)
def test_a_bad_option_of_submit_is_refused(cli: Cli, words: list[str], says: str) -> None:
    cli.write(HERE, GOOD)
    assert says in refused(cli, "submit", HERE, *words)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"VTJOBS_LEDGER": "postgres//nonsense://x:sesame@y"}, "ledger: cannot parse the URL"),
        ({"VTJOBS_LEDGER": "mysql://me:sesame@host/name"}, "ledger: mysql is not supported"),
        (
            {"VTJOBS_LOCAL_SLOTS": "many"},
            "VTJOBS_LOCAL_SLOTS: local.slots: expected a whole number",
        ),
        ({"VTJOBS_WORKSPACE": "/proc/none/here"}, "workspace /proc/none/here is not writable"),
        ({"VTJOBS_BACKEND": "slurmm"}, "backend: unknown backend 'slurmm'"),
    ],
)
def test_a_bad_setting_is_refused(cli: Cli, env: dict[str, str], says: str) -> None:
    cli.write(HERE, GOOD)
    said = refused(cli, "submit", HERE, **env)
    assert says in said
    assert "sesame" not in said


def test_a_ledger_that_does_not_answer_is_another_error_and_hides_the_password(cli: Cli) -> None:
    cli.write(HERE, GOOD)
    done = cli("submit", HERE, VTJOBS_LEDGER="postgres://me:sesame@127.0.0.1:9/none")
    assert done.returncode == 6
    assert "127.0.0.1:9" in done.stderr
    assert "sesame" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not list(cli.workspace.glob("grids/*")), "no grid may be half stored"


def test_a_file_in_the_place_of_the_workspace_is_refused(cli: Cli) -> None:
    cli.write(HERE, GOOD)
    cli.write("runs", "")
    assert "runs is not writable" in refused(cli, "submit", HERE)


def test_a_missing_grid_is_refused_with_the_nearest_built_in_one(cli: Cli) -> None:
    assert "Did you mean 'quickstart'?" in refused(cli, "submit", "quickstar")


@pytest.mark.parametrize("typed", ["grid", "gird.yaml", "./grid"])
def test_a_missing_grid_is_refused_with_the_file_that_lies_there(cli: Cli, typed: str) -> None:
    cli.write(HERE, GOOD)
    assert "Did you mean 'grid.yaml'?" in refused(cli, "submit", typed)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Cli:
    """A user whose two runs are held."""
    user = Cli(tmp_path_factory.mktemp("held"), cache)
    user.write(HERE, tiny_grid())
    user.ok("submit", HERE, "--hold")
    return user


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["cancel", "99999"], 3, "99999"),
        (["cancel", "12abc"], 3, "12abc"),
        (["show", "../../etc"], 2, "cannot read '../../etc'"),
        (["runs", "--limit", "-1"], 2, "--limit"),
        (["runs", "seed=-1"], 2, "seeds are whole numbers"),
        (["runs", "seed=" + ",".join(["x"] * 1000)], 2, "seeds are whole numbers"),
        (["runs", "backbone="], 2, "a value is missing"),
        (["logs", "tiny", "--attempt", "0"], 2, "--attempt"),
    ],
)
def test_a_run_that_cannot_be_meant_is_refused(
    held: Cli, words: list[str], code: int, says: str
) -> None:
    assert says in refused(held, *words, code=code)


def test_submitting_the_same_grid_twice_is_harmless(held: Cli) -> None:
    done = held("submit", HERE)
    assert done.returncode == 0
    assert "0 new, 2 already pending" in done.stderr


def test_a_grid_edited_after_submission_launches_only_what_is_new(held: Cli) -> None:
    before = {run["run_id"] for run in held.json("runs")}
    held.write("edited.yaml", tiny_grid(seeds="3"))
    document = held.json("plan", "edited.yaml")
    assert (document["runs"], document["new"]) == (3, 1)
    assert {run["run_id"] for run in held.json("runs")} == before


@pytest.mark.parametrize(
    "words", [["--help"], ["report", "--help"], ["plan", HERE], ["submit", "none.yaml"]]
)
def test_an_ascii_terminal_of_20_columns_gets_no_traceback(cli: Cli, words: list[str]) -> None:
    cli.write(HERE, GOOD.replace("name: small", "name: small\ndescription: naïve λ"))
    plain = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "COLUMNS": "20",
        "TERM": "dumb",
    }
    done = cli.process(*words, **plain)
    assert done.returncode == (2 if words[0] == "submit" else 0), done.stderr
    assert "Traceback" not in done.stderr


def without_a_reader(cli: Cli, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command whose output nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "vtjobs.cli", *words],
        cwd=cli.folder,
        env=cli.environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    return done


@pytest.mark.parametrize("command", ["schema", "--help", "data list", "config show"])
def test_a_reader_that_has_left_is_no_error(cli: Cli, command: str) -> None:
    done = without_a_reader(cli, *command.split())
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_is_still_told_to_a_person_where_the_reader_of_its_json_has_left(
    cli: Cli,
) -> None:
    cli.write(HERE, "name: x\nbackbons: [swin_t]\n")
    done = without_a_reader(cli, "plan", HERE, "--json")
    assert done.returncode == 2
    assert done.stderr and all(line.startswith("error: ") for line in done.stderr.splitlines())


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
def test_an_interrupt_while_submitting_says_what_was_done_and_a_second_submission_does_the_rest(
    cli: Cli, delay: float
) -> None:
    cli.write(HERE, tiny_grid(seeds="300"))
    process = cli.start("submit", HERE, "--hold")
    while not (cli.workspace / "grids").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    # A shell shows 130 for both: an interrupt that met Python in its own last breath ends it by the
    # signal.
    assert process.returncode in (0, 130, -signal.SIGINT)
    assert "300 runs, 300 new" in err or ("interrupted" in err and "submit" in err)
    cli.ok("submit", HERE, "--hold")
    assert len(set(cli.ok("runs", "-q").split())) == 300
    assert cli.json("status")["runs"]["pending"] == 300


def test_a_user_without_a_home_is_served(cli: Cli) -> None:
    cli.write(HERE, GOOD)
    env = {
        name: value
        for name, value in cli.environment().items()
        if name not in ("HOME", "XDG_CACHE_HOME")
    }
    words = [sys.executable, "-m", "vtjobs.cli", "config", "show"]
    done = subprocess.run(words, cwd=cli.folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

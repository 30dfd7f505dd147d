"""Killing any process at any moment.

The next command finishes the work, and nothing is lost or doubled.
"""

import os
import pty
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.workspace.lineage import read_attempt
from vtjobs.jobs.workspace.paths import Workspace

from .conftest import end_processes, processes_of
from .support.cli import Cli
from .support.grids import ENDLESS, tiny_grid
from .support.lab import children, is_running, wait_for, weights_of
from .support.postgres import PostgresServer

pytestmark = pytest.mark.training


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def agents(cli: Cli) -> list[int]:
    return [pid for pid in processes_of(cli.workspace) if "vtjobs.workers.agent" in words_of(pid)]


def runners(cli: Cli) -> list[int]:
    return [
        pid
        for pid in processes_of(cli.workspace)
        if "vtjobs.orchestrator.backends.local.queue_process" in words_of(pid)
    ]


def ranks(cli: Cli) -> list[int]:
    return [
        rank for agent in agents(cli) for template in children(agent) for rank in children(template)
    ]


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def completions(cli: Cli) -> dict[str, int]:
    """Count the attempts of each run that say in their journal that they completed it."""
    workspace = Workspace(cli.workspace)
    found = {}
    for run_id in workspace.run_ids():
        records = [
            read_attempt(workspace.run(run_id), number)
            for number in workspace.run(run_id).attempts()
        ]
        found[run_id] = sum(
            record.end is not None and record.end.state == "completed" for record in records
        )
    return found


def is_training(cli: Cli) -> bool:
    return any(
        b'"kind":"epoch"' in path.read_bytes()
        for path in cli.workspace.glob("??/*/attempts/*/journal-0.jsonl")
    )


def states(cli: Cli) -> dict[str, int]:
    return {state: count for state, count in cli.json("status")["runs"].items() if count}


def test_the_queue_survives_the_command_and_the_closing_of_its_terminal(cli: Cli) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="2"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cli.folder)
        os.execve(
            sys.executable, [sys.executable, "-m", "vtjobs.cli", "submit", grid], cli.environment()
        )
    wait_for(lambda: agents(cli) and os.waitpid(pid, os.WNOHANG)[0])
    # The kernel hangs up on whatever still belongs to the terminal.
    os.close(terminal)
    wait_for(lambda: set(completions(cli).values()) == {1})
    assert states(cli) == {"completed": 2}


def test_after_a_killed_agent_the_next_submission_finishes_and_its_ranks_are_gone(cli: Cli) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="2", epochs=60))
    cli.ok("submit", grid)
    wait_for(lambda: is_training(cli))
    orphans = ranks(cli)
    kill(agents(cli))
    wait_for(lambda: not any(is_running(pid) for pid in orphans), 10)
    cli.ok("submit", grid, "--wait")
    assert set(completions(cli).values()) == {1}
    for run in cli.json("runs", "tiny"):
        assert run["state"] == "completed" and run["attempts"] <= 2


def test_agents_go_on_when_the_queues_runner_is_killed_and_the_next_command_starts_another(
    cli: Cli,
) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="2", epochs=60))
    cli.ok("submit", grid)
    wait_for(lambda: is_training(cli))
    before = agents(cli)
    kill(runners(cli))
    assert states(cli).get("running", 0) + states(cli).get("completed", 0) >= 1
    assert set(agents(cli)) <= set(before), "no agent was doubled"
    cli.ok("submit", grid, "--wait")
    assert set(completions(cli).values()) == {1}
    assert all(run["attempts"] == 1 for run in cli.json("runs", "tiny"))


def test_two_submitters_at_once_start_every_run_once(cli: Cli) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="4"))
    cli.ok("plan", grid)
    both = [cli.start("submit", grid, "--wait") for _ in range(2)]
    for submitter in both:
        _, errors = submitter.communicate(timeout=120)
        assert submitter.returncode == 0, errors
    assert set(completions(cli).values()) == {1}
    assert [run["attempts"] for run in cli.json("runs", "tiny")] == [1] * 4


def test_a_killed_submitter_loses_and_doubles_nothing(cli: Cli) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="3"))
    for delay_s in (0.4, 0.8, 1.2):
        submitter = cli.start("submit", grid, "--wait")
        time.sleep(delay_s)
        submitter.kill()
        submitter.communicate()
    cli.ok("submit", grid, "--wait")
    assert set(completions(cli).values()) == {1} and len(completions(cli)) == 3


def test_rebuilding_the_ledger_in_the_middle_of_a_grid_doubles_nothing(cli: Cli) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="3", epochs=30))
    cli.ok("submit", grid)
    wait_for(lambda: is_training(cli))
    cli.ok("ledger", "rebuild", "--yes")
    cli.ok("submit", grid, "--wait")
    assert set(completions(cli).values()) == {1}
    assert all(
        (run["state"], run["attempts"]) == ("completed", 1) for run in cli.json("runs", "tiny")
    )


def test_a_running_run_is_cancelled_within_seconds_and_a_retry_goes_on_from_its_checkpoint(
    cli: Cli,
) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="1", epochs=ENDLESS))
    cli.ok("submit", grid)
    wait_for(lambda: is_training(cli))
    cli.ok("cancel", "tiny")
    wait_for(lambda: states(cli) == {"cancelled": 1}, 20)
    cli.ok("retry", "tiny")
    (run_id,) = completions(cli)
    folder = Workspace(cli.workspace).run(run_id)
    wait_for(
        lambda: folder.attempts()[-1] > 1 and read_attempt(folder, folder.attempts()[-1]).start
    )
    first, second = read_attempt(folder, 1), read_attempt(folder, folder.attempts()[-1])
    assert first.end is not None and second.start is not None
    assert (second.start.resumed_attempt, second.start.resumed_step) == (1, first.end.step)


def test_deleting_the_workspace_to_start_over_leaves_nothing_behind(cli: Cli) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="2", epochs=ENDLESS))
    cli.ok("submit", grid)
    wait_for(lambda: is_training(cli))
    old = [*processes_of(cli.workspace), *ranks(cli)]
    # What is at work there may still write.
    wait_for(lambda: shutil.rmtree(cli.workspace, ignore_errors=True) or not cli.workspace.exists())
    cli.write("grid.yaml", tiny_grid(seeds="2", epochs=2))
    cli.ok("submit", grid, "--wait")
    wait_for(lambda: not any(is_running(pid) for pid in old), 30)
    assert set(completions(cli).values()) == {1}


def test_what_a_moved_workspace_trained_goes_on_at_its_new_place(cli: Cli) -> None:
    text = tiny_grid(seeds="1", epochs=ENDLESS, extra="checkpoint_every: 1s")
    cli.ok("submit", cli.write("grid.yaml", text))
    wait_for(lambda: is_training(cli))
    (run_id,) = completions(cli)
    wait_for(lambda: list(Workspace(cli.workspace).run(run_id).checkpoints(1).glob("step-*")))
    old = [*processes_of(cli.workspace), *ranks(cli)]
    moved = Cli(cli.folder / "elsewhere", cli.cache)
    moved.folder.mkdir()
    cli.workspace.rename(moved.workspace)
    wait_for(lambda: not any(is_running(pid) for pid in old), 30)
    assert not cli.workspace.exists()
    try:
        moved.ok("submit", moved.write("grid.yaml", text))
        # A checkpoint that was due just then could not be saved: it is tried again minutes later.
        moved("retry", "tiny")
        folder = Workspace(moved.workspace).run(run_id)
        wait_for(lambda: 2 in folder.attempts() and read_attempt(folder, 2).start)
        start = read_attempt(folder, 2).start
        assert start is not None and start.resumed_attempt == 1
    finally:
        end_processes(moved.workspace)


@pytest.mark.parametrize("change", ["missing", "other"])
def test_a_workspace_that_is_not_the_one_is_refused_and_nothing_is_changed(
    cli: Cli, change: str
) -> None:
    grid = cli.write("grid.yaml", tiny_grid(seeds="1"))
    cli.ok("submit", grid, "--hold")
    identity = cli.workspace / "workspace.json"
    if change == "missing":
        identity.unlink()
    else:
        identity.write_text(identity.read_text().replace('"id": "', '"id": "f'))
    before = listing(cli.workspace)
    for words in (("status",), ("release", "all", "--yes"), ("cancel", "all")):
        done = cli(*words)
        assert done.returncode == (5 if change == "missing" else 2), done.stderr
        assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert listing(cli.workspace) == before
    assert not agents(cli)


def listing(root: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and "-shm" not in path.name
    }


def test_the_ledgers_password_reaches_no_process_no_file_and_no_output(
    cli: Cli, postgres: PostgresServer
) -> None:
    secret = postgres.password
    cli.env["VTJOBS_LEDGER"] = postgres.new_database()
    grid = cli.write("grid.yaml", tiny_grid(seeds="1", epochs=ENDLESS))
    done = [cli("submit", grid)]
    assert done[0].returncode == 0, done[0].stderr
    wait_for(lambda: is_training(cli))
    everybody = [
        *agents(cli),
        *runners(cli),
        *ranks(cli),
        *(t for agent in agents(cli) for t in children(agent)),
        # The keeper is one of them.
        *(keeper for runner in runners(cli) for keeper in children(runner)),
    ]
    assert len(everybody) >= 6
    for pid in everybody:
        assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert secret.encode() not in path.read_bytes()
        except OSError:
            continue
    (run_id,) = completions(cli)
    commands = (
        ["status"],
        ["show", run_id],
        ["config", "show"],
        ["doctor"],
        ["failures"],
        ["cancel", run_id],
    )
    done += [cli(*command) for command in commands]
    wait_for(lambda: not agents(cli), 30)
    assert not [found.args for found in done if secret in found.stdout + found.stderr]
    files = [path for path in cli.workspace.rglob("*") if path.is_file()]
    assert len(files) > 5 and not [path for path in files if secret.encode() in path.read_bytes()]


@pytest.fixture
def undisturbed(tmp_path: Path, cache: Path) -> Iterator[Cli]:
    """Another user, whom nobody disturbs."""
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    yield Cli(folder, cache)


@pytest.mark.long
def test_a_dozen_random_kills_cost_nothing_but_time(cli: Cli, undisturbed: Cli) -> None:
    text = tiny_grid(
        seeds="3",
        heads="[supervised, relvit]",
        epochs=80,
        extra="retries: 50\ncheckpoint_every: 1s",
    )
    grid = cli.write("grid.yaml", text)
    undisturbed.ok("submit", undisturbed.write("grid.yaml", text), "--wait")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    victims: list[Callable[[], list[int]]] = [
        lambda: agents(cli),
        lambda: ranks(cli),
        lambda: runners(cli),
    ]
    submitter: subprocess.Popen[str] | None = None
    for _ in range(12):
        if submitter is None or submitter.poll() is not None:
            submitter = cli.start("submit", grid, "--wait")
        time.sleep(draw.uniform(0.5, 6))
        choice: Any = draw.choice([*victims, None])
        if choice is None:
            submitter.kill()
            submitter.communicate()
        elif found := choice():
            kill([draw.choice(found)])
    if submitter is not None:
        submitter.kill()
        submitter.communicate()
    cli.ok("submit", grid, "--wait")
    assert set(completions(cli).values()) == {1}, "completed once, and only once"
    for run_id in completions(cli):
        assert weights_of(cli.workspace, run_id) == weights_of(undisturbed.workspace, run_id)
    with sqlite3.connect(cli.workspace / "ledger.sqlite") as connection:
        assert connection.execute(
            "SELECT count(*) FROM runs WHERE state != 'completed'"
        ).fetchone() == (0,)

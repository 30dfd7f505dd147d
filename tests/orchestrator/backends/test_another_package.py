"""A backend that another package brings: one folder, and one line that registers it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ...support.cli import Cli
from ...support.grids import ENDLESS, tiny_grid
from ...support.lab import wait_for

pytestmark = pytest.mark.training

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def user(cli: Cli, tmp_path: Path) -> Cli:
    """A user who has installed the package."""
    installed = tmp_path / "installed"
    facts = installed / "vtjobs_nohup-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: vtjobs-nohup\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[vtjobs.backends]\nnohup = tests.support.nohup\n")
    cli.env |= {"PYTHONPATH": f"{installed}:{ROOT}"}
    return cli


def run(user: Cli, *words: str, code: int = 0, **env: str) -> tuple[str, str]:
    """Run a command in a process of its own: what is installed is found when Python starts."""
    done = user.process(*words, **env)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def runs(user: Cli) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(user, "runs", "all", "--json")[0])
    return found


def test_its_runs_are_trained_and_counted(user: Cli) -> None:
    grid = user.write("grid.yaml", tiny_grid(seeds="3", extra="backend: {nohup: {limit: 2}}"))
    assert "on nohup" in run(user, "plan", grid)[0]
    run(user, "submit", grid, "--wait")
    found = runs(user)
    assert [one["state"] for one in found] == ["completed"] * 3
    assert all(one["host"].startswith("nohup-") for one in found), "nodes are named by the backend"


def test_its_runs_are_cancelled(user: Cli) -> None:
    text = tiny_grid(seeds="1", epochs=ENDLESS, extra="backend: nohup")
    run(user, "submit", user.write("grid.yaml", text))
    wait_for(lambda: runs(user)[0]["state"] == "running")
    run(user, "cancel", "all")
    wait_for(lambda: runs(user)[0]["state"] == "cancelled")


def test_its_settings_and_its_checks_are_read_like_any_others(user: Cli) -> None:
    grid = user.write("grid.yaml", tiny_grid(extra="backend: {nohup: {limit: 0}}"))
    _, err = run(user, "plan", grid, code=2)
    assert "backend.nohup.limit" in err
    user.write("vtjobs.yaml", "backend: nohup\nnohup: {limit: 3}\n")
    out, _ = run(user, "doctor", "--json")
    (check,) = [check for check in json.loads(out)["checks"] if check["name"] == "nohup"]
    assert check["ok"] and check["text"].startswith("up to 3 agents")


def test_a_package_that_is_registered_and_gone_is_named(user: Cli, tmp_path: Path) -> None:
    (facts,) = (tmp_path / "installed").glob("*.dist-info")
    (facts / "entry_points.txt").write_text("[vtjobs.backends]\nnohup = gone.nohup\n")
    _, err = run(user, "plan", user.write("grid.yaml", tiny_grid()), code=2)
    assert "backend nohup is registered as gone.nohup" in err and "uninstall" in err


def test_without_it_the_name_is_unknown(cli: Cli) -> None:
    done = cli("plan", cli.write("grid.yaml", tiny_grid()), "--backend", "nohub")
    assert done.returncode == 2
    assert "unknown backend 'nohub'" in done.stderr and "local" in done.stderr


def test_an_agent_reads_no_settings_to_know_its_node() -> None:
    """Its parts are imported one by one: pydantic would cost an agent a third of its start."""
    names = ("local", "slurm", "ray")
    code = "import sys; from vtjobs.jobs.config.node import on_node\n"
    code += f"[on_node(name) for name in {names}]; assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)

"""The workspace's owner, where its file system is mounted read-only: an archive, or a fault."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.loop.tick import look

from .support.cli import Cli
from .support.grids import tiny_grid
from .support.journals import ended, journal, scored, started
from .support.lab import Lab
from .support.strangers import STRANGER, as_stranger, needs_root

pytestmark = needs_root


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Cli]:
    """A workspace with a completed and a waiting run, mounted read-only."""
    folder = tmp_path_factory.mktemp("archive")
    lab = Lab(folder, asleep=True)
    runs = lab.submit(tiny_grid(seeds="2"))
    lab.tick()
    journal(lab, runs[0], 1, started(), scored(90.0), ended("completed"))
    look(lab.context)
    lab.context.ledger.engine.dispose()
    user = Cli(folder, cache, {"VTJOBS_WORKSPACE": str(lab.root)})
    user.write("grid.yaml", tiny_grid(seeds="3"))
    place = str(lab.root)
    mounted = subprocess.run(["mount", "--bind", place, place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
    yield user
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("command", ["status", "runs", "report", "diff all all"])
def test_a_command_that_reads_still_answers(archived: Cli, command: str) -> None:
    done = archived(*command.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    "command",
    ["submit grid.yaml", "cancel all --yes", "retry all --yes", "gc --yes", "ledger rebuild --yes"],
)
def test_a_command_that_acts_ends_with_5_and_says_that_the_mount_is_read_only(
    archived: Cli, command: str
) -> None:
    done = archived(*command.split())
    assert done.returncode == 5, done.stderr
    assert "its file system is mounted read-only" in done.stderr
    assert "belongs to" not in done.stderr


def test_doctor_says_it_with_the_workspace(archived: Cli) -> None:
    done = archived("doctor")
    assert done.returncode == 1, done.stderr
    assert "BAD  workspace" in done.stdout and "mounted read-only" in done.stdout
    assert "BAD  ledger" not in done.stdout


def test_where_its_mode_forbids_to_write_the_owner_is_told_how_to_allow_it(
    open_folder: Path,
) -> None:
    root = Workspace(open_folder / "runs").create().root
    identity = pwd.getpwnam(STRANGER)
    for path in (root, *root.rglob("*")):
        os.chown(path, identity.pw_uid, identity.pw_gid)
    root.chmod(0o500)
    refused = as_stranger(open_folder, "cancel", "all", "--workspace", str(root))
    assert refused.returncode == 5, refused.stderr
    assert f"Allow it with: chmod u+rwx {root}" in refused.stderr

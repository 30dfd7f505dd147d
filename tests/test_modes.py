"""Whose the files of a workspace are: the umask's rule, or the group's."""

import grp
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.paths import Workspace

from .conftest import end_processes
from .support.cli import Cli
from .support.grids import ENDLESS, tiny_grid
from .support.strangers import as_stranger, contents, needs_root

pytestmark = pytest.mark.training

# A group that every system has, that nobody has as their first one, and that root can join.
GROUP = "users"
GID = grp.getgrnam(GROUP).gr_gid
# What a file must not hold.
PASSWORD = "correct-horse-battery"


@dataclass
class Umasked(Cli):
    """A user with an umask of their own, and perhaps in one more group."""

    umask: int = 0o022
    groups: tuple[int, ...] = ()

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "vtjobs.cli", *words],
            cwd=self.folder,
            env=self.environment(PGPASSWORD=PASSWORD, **env),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            umask=self.umask,
            **({"extra_groups": self.groups} if self.groups else {}),
        )

    def does(self, *words: str) -> None:
        done = self.process(*words)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


def everything_that_writes(user: Umasked) -> None:
    """Use a workspace: train, fail, retry, hold, cancel, score, keep it going."""
    user.write("grid.yaml", tiny_grid(seeds="1"))
    user.does("submit", "grid.yaml", "--wait")
    user.does("evaluate", "tiny", "--sets", "test")
    user.does("rerun", "tiny", "--yes")
    user.does("wait", "tiny")
    user.write("later.yaml", tiny_grid(name="later", seeds="2", epochs=ENDLESS))
    user.does("submit", "later.yaml")
    user.does("hold", "later")
    user.does("cancel", "later", "--yes")
    user.does("supervise", "--once")
    user.does("ledger", "rebuild", "--yes")
    end_processes(user.workspace)


def modes(root: Path) -> dict[str, int]:
    """Return the mode of everything in a workspace, by its path; the root is "."."""
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode)
        for path in (root, *root.rglob("*"))
    }


def wrong(root: Path, *, file: int, folder: int) -> dict[str, str]:
    """Return what has another mode than its kind should have."""
    return {
        name: oct(mode)
        for name, mode in modes(root).items()
        if mode != (folder if (root / name).is_dir() else file)
    }


def test_files_have_the_modes_that_the_umask_leaves(tmp_path: Path, cache: Path) -> None:
    user = Umasked(tmp_path, cache, umask=0o027)
    everything_that_writes(user)
    assert not wrong(user.workspace, file=0o640, folder=0o750)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]


@pytest.fixture(scope="module")
def shared(cache: Path) -> Iterator[Umasked]:
    """Somebody who shares a workspace with a group, and whose umask would share nothing."""
    with tempfile.TemporaryDirectory(prefix="vtjobs-shared-") as folder:
        Path(folder).chmod(0o755)
        user = Umasked(Path(folder), cache, umask=0o077, groups=(GID,))
        user.write("vtjobs.yaml", f"group: {GROUP}\n")
        everything_that_writes(user)
        yield user


@needs_root
def test_with_a_group_every_file_is_the_groups_whatever_the_umask(shared: Umasked) -> None:
    assert not wrong(shared.workspace, file=0o660, folder=0o2770)
    assert {path.stat().st_gid for path in shared.workspace.rglob("*")} == {GID}
    # Nothing else that was made on the way is the group's.
    assert not [path for path in shared.cache.rglob("*") if path.stat().st_gid == GID]


@needs_root
def test_a_member_of_the_group_reads_everything_and_changes_nothing(shared: Umasked) -> None:
    workspace = Workspace(shared.workspace)
    # Some were cancelled before they started.
    run_id = next(
        run for run in workspace.run_ids() if any(workspace.run(run).path.rglob("rank-0.log"))
    )
    before = contents(shared.workspace)
    place = ["-W", str(shared.workspace)]
    for words in (["status"], ["runs"], ["show", run_id], ["logs", run_id], ["report", "tiny"]):
        done = as_stranger(shared.folder, *words, *place, groups=[GID])
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        assert done.stdout
    as_stranger(shared.folder, "doctor", *place, groups=[GID])
    for words in (["cancel", "all"], ["ledger", "rebuild", "--yes"]):
        refused = as_stranger(shared.folder, *words, *place, groups=[GID])
        assert refused.returncode == 2, refused.stderr
        assert "belongs to root, and you may not write there" in refused.stderr
    assert contents(shared.workspace) == before
    assert as_stranger(shared.folder, "status", *place).returncode != 0


@needs_root
def test_a_workspace_of_before_is_shared_by_the_command_that_the_error_names(
    open_folder: Path, cache: Path
) -> None:
    user = Umasked(open_folder, cache, umask=0o077, groups=(GID,))
    user.write("grid.yaml", tiny_grid(seeds="1"))
    user.does("submit", "grid.yaml", "--wait")
    end_processes(user.workspace)
    user.write("vtjobs.yaml", f"group: {GROUP}\n")
    refused = user.process("submit", "grid.yaml")
    assert refused.returncode == 2
    assert "vtjobs.yaml: group: the workspace" in refused.stderr
    subprocess.run(refused.stderr.partition("Share it: ")[2], shell=True, check=True)
    user.does("rerun", "tiny", "--yes")
    user.does("wait", "tiny")
    end_processes(user.workspace)
    assert not wrong(user.workspace, file=0o660, folder=0o2770)
    assert {path.stat().st_gid for path in user.workspace.rglob("*")} == {GID}

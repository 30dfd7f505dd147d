"""No file of a workspace, whatever is in it, makes a command end in a traceback."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.errors import DamagedFile
from vtjobs.jobs.run.states import ExitCode
from vtjobs.jobs.workspace.markers import closed
from vtjobs.jobs.workspace.paths import Workspace, WorkspaceUnreadable
from vtjobs.jobs.workspace.stored_grid import read_grid, write_spec
from vtjobs.orchestrator.backends.base import JobState
from vtjobs.orchestrator.backends.local.backend import LocalQueue
from vtjobs.orchestrator.loop.guard import guard
from vtjobs.orchestrator.requests import actions

from .support.called import called
from .support.grids import tiny_grid
from .support.journals import ended, journal, scored, started
from .support.lab import Lab
from .support.ledgers import an_allocation

pytestmark = pytest.mark.training

# The ways in which a file is spoiled: name -> what becomes of its bytes.
FOREIGN = b'{"name": ["something", "else"]}'
WAYS = ("empty", "truncated", "binary", "foreign", "list", "newer")
# What reads everything, what writes again, and what removes markers.
COMMANDS = ("status", "show RUN", "why RUN", "submit grid.yaml --hold", "release all --yes")


def spoiled(data: bytes, way: str) -> bytes:
    if way == "newer":
        try:
            found = json.loads(data)
        except ValueError:
            return data + b"a line of a newer version\n"
        newer = {"schema_version": 99, "version": 99, "more": 1}
        return json.dumps({**found, **newer} if isinstance(found, dict) else [found]).encode()
    cases = {
        "empty": b"",
        "truncated": data[: len(data) // 2],
        "binary": b"\x00\xff\xfe" * 20,
        "foreign": FOREIGN,
        "list": b"[1, 2]",
    }
    return cases[way]


@pytest.fixture(scope="module")
def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a workspace that has a file of every kind."""
    lab = Lab(tmp_path_factory.mktemp("damaged"), asleep=True)
    run_id, waits = lab.submit(tiny_grid(seeds="2", epochs=1))
    lab.tick()
    journal(lab, run_id, 1, started(), scored(90.0), ended("completed"))
    lab.tick()
    (grid,) = lab.context.workspace.grids.iterdir()
    write_spec(lab.context.workspace, grid.name, run_id)
    attempt = lab.run(run_id).attempt(1)
    (attempt / "environment.json").write_text('{"python": "3.11"}')
    (attempt / "logs").mkdir()
    (attempt / "logs" / "rank-0.log").write_text("epoch 1\n")
    lab.run(waits).cancel(1)
    markers = {
        "hold": {"runs": [waits]},
        "canary": {"runs": [waits], "passed": False},
        "breaker": {"class": "user_error", "signature": "", "message": "no", "runs": [waits]},
        "forgiven": {waits: 1},
    }
    for name, content in markers.items():
        (grid / f"{name}.json").write_text(json.dumps(content))
    (allocation,) = lab.context.workspace.allocations.glob("vtj-*.json")
    queue = lab.context.workspace.local_queue()
    entries = {
        "queue": {"created_at": 1.0, "gpus": 0, "cores": 1},
        "running": {"pid": 1, "started": "1", "boot": "b", "gpus": [], "cores": 1},
        "ended": {"code": 0, "word": "exit 0"},
    }
    for place, content in entries.items():
        (queue / place).mkdir(parents=True, exist_ok=True)
        name = allocation.name if place != "ended" else "vtj-0123456789.json"
        (queue / place / name).write_text(json.dumps(content))
    unsent = {"backend": "slurm", "command": ["true"]}
    allocation.with_suffix(".unsent").write_text(json.dumps(unsent))
    (lab.root / "reach-slurm.json").write_text("{}")
    lab.context.ledger.engine.dispose()
    return lab.folder


def kinds(folder: Path) -> list[str]:
    """Return a file of each kind in a workspace, relative to the folder."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("runs/**/*")):
        name = str(path.relative_to(folder))
        if path.is_file() and "checkpoints" not in name and "-shm" not in name:
            found.setdefault(re.sub(r"[0-9a-f]{8,}|[0-9]+", "#", name), name)
    return sorted(found.values())


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_file_is_a_clear_line_or_is_mended(
    lab_folder: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    wrong: list[str] = []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for name in kinds(lab_folder):
        folder = tmp_path / "lab"
        shutil.copytree(lab_folder, folder)
        path = folder / name
        path.write_bytes(spoiled(path.read_bytes(), way))
        monkeypatch.chdir(folder)
        # As if another process served the queue: nothing is trained.
        with LocalQueue(Workspace(folder / "runs")).lock():
            wrong += [f"{way} {name}: {text}" for text in said(folder)]
        shutil.rmtree(folder)
    assert wrong == []


def said(folder: Path) -> list[str]:
    """Run every command in a workspace; return what ended in a traceback."""
    run_id = next(folder.glob("runs/??/*/spec.json")).parent.name
    found: list[str] = []
    for command in COMMANDS:
        words = [run_id if word == "RUN" else word for word in command.split()]
        done = called(*words)
        if done.traceback:
            found.append(f"{command}: {done.traceback}")
    return found


def test_a_description_is_written_again_from_the_grid(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    workspace = quiet_lab.context.workspace
    (grid,) = workspace.grids.iterdir()
    write_spec(workspace, grid.name, run_id)
    sound = workspace.run(run_id).spec.read_bytes()
    workspace.run(run_id).spec.write_bytes(b"")
    write_spec(workspace, grid.name, run_id)
    assert workspace.run(run_id).spec.read_bytes() == sound


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"version": 1}'])
def test_an_identity_is_not_replaced_by_a_new_one(quiet_lab: Lab, content: bytes | None) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    workspace = quiet_lab.context.workspace
    before = workspace.check()
    workspace.identity.unlink()
    if content is not None:
        workspace.identity.write_bytes(content)
    with pytest.raises(WorkspaceUnreadable, match="Restore it from its copy: cp ") as caught:
        workspace.check()
    if content is not None:
        os.system(str(caught.value).partition("copy: ")[2])
    # What is missing altogether, a submission restores.
    assert workspace.create().check() == before


def test_a_workspace_that_lost_identity_and_copy_is_not_taken_for_a_new_one(
    quiet_lab: Lab,
) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    workspace = quiet_lab.context.workspace
    workspace.identity.unlink()
    workspace.identity_copy.unlink()
    with pytest.raises(WorkspaceUnreadable, match=r"Restore one of them from a backup"):
        workspace.create()
    assert not workspace.identity.exists()


@pytest.mark.parametrize("name", ["hold", "canary", "breaker"])
def test_a_damaged_marker_keeps_runs_from_starting_until_they_are_released(
    quiet_lab: Lab, name: str
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    workspace = quiet_lab.context.workspace
    (grid,) = workspace.grids.iterdir()
    workspace.marker(grid.name, name).touch()
    assert closed(workspace, grid.name)(run_id) is not None
    (told,) = guard(quiet_lab.context)
    assert f"vtjobs release {grid.name}" in told
    actions.release(quiet_lab.context, [run_id])
    assert closed(workspace, grid.name)(run_id) is None


def test_the_queue_of_this_machine_mends_its_files(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "runs").create()
    queue = LocalQueue(workspace)
    allocation = an_allocation([("a" * 16, 1)], token="vtj-0001")
    write_new(workspace.allocation(allocation.token), to_json(allocation.to_dict()))
    queue.add(allocation)
    sound = queue.waiting()
    queue.entry("queue", allocation.token).write_bytes(b"")
    assert queue.waiting() == sound
    queue.folder("running").joinpath("vtj-0001.json").touch()
    assert queue.view(allocation.token).state is JobState.ENDED
    queue.folder("ended").joinpath("vtj-0001.json").touch()
    assert queue.view(allocation.token).state is JobState.ENDED


def test_a_stored_grid_is_written_again_by_its_submission(quiet_lab: Lab) -> None:
    text = tiny_grid(seeds="1")
    quiet_lab.submit(text)
    workspace = quiet_lab.context.workspace
    (grid,) = workspace.grids.iterdir()
    for name in ("runs.json", "grid.json"):
        (grid / name).write_bytes(b"")
        with pytest.raises(DamagedFile, match="submit the grid file again"):
            read_grid(workspace, grid.name)
        quiet_lab.submit(text)
        assert read_grid(workspace, grid.name) is not None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"token": "vtj-1", "newer": 1}'])
def test_an_agent_says_in_a_line_that_its_allocation_is_damaged(
    tmp_path: Path, content: bytes
) -> None:
    workspace = Workspace(tmp_path / "runs").create()
    workspace.allocation("vtj-0001").write_bytes(content)
    command = [sys.executable, "-m", "vtjobs.workers.agent", "--token", "vtj-0001"]
    done = subprocess.run(
        [*command, "--workspace", str(workspace.root)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.SETUP_ERROR
    assert "is damaged" in done.stderr and "Traceback" not in done.stderr

"""Checkpoints: whole or not there, whatever happens while they are written."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from vtjobs.jobs.run.states import FailureClass
from vtjobs.workers.checkpoints import checkpoint
from vtjobs.workers.checkpoints.manifest import MODEL, verify
from vtjobs.workers.errors import STORAGE_ERRORS
from vtjobs.workers.ranks.failure import classify

from ...support import killed_save
from ...support.killed_save import save
from ...support.training import differences, run_spec, training

ROOT = Path(__file__).parents[3]


def _step(place: Path) -> int:
    """Read a checkpoint that must be whole; return the step that its weights tell."""
    manifest = verify(place, run_id="run")
    model, ema, state = checkpoint.load(place)
    assert ema is not None and differences(model, ema) == []
    told = {int(value) for tensor in model.values() for value in tensor.unique()} | {
        state["step"],
        manifest.step,
    }
    assert len(told) == 1
    return told.pop()


def test_a_save_that_is_killed_at_any_call_leaves_every_published_checkpoint_whole(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", killed_save.__name__[killed_save.__name__.index("tests.") :], str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    moments = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(moments) > 20 and [moment["through"] for moment in moments] == [False] * (
        len(moments) - 1
    ) + [True]
    newest = []
    for moment in moments:
        folder = Path(moment["folder"])
        steps = [_step(place) for place in sorted(folder.glob("step-*"))]
        assert 2 in steps or steps[-1] == 3, moment
        newest.append(steps[-1])
        # The next save finds its way and clears what the dead one left.
        save(folder, 4)
        assert _step(folder / "step-000000004") == 4
        assert {path.name for path in folder.iterdir()} == {
            f"step-{newest[-1]:09d}",
            "step-000000004",
        }
    # Both sides of the publication were met.
    assert set(newest) == {2, 3}


def test_a_checkpoint_gives_back_just_what_was_saved(tmp_path: Path) -> None:
    run = training(run_spec(head="relvit", epochs=1, ema_decay=0.9, precision="fp16"), tmp_path)
    run.step = 0
    run.trainee.train()
    run._one_step()
    run.save()
    place = next(tmp_path.glob("step-*"))
    model, ema, state = checkpoint.load(place)
    assert differences(dict(run.trainee.backbone.state_dict()), model) == []
    assert ema is not None and differences(dict(run.ema.module.state_dict()), ema) == []
    assert run.trainee.head is not None
    assert differences(dict(run.trainee.head.state_dict()), state["head"]) == []
    assert differences(run.optimizer.state_dict(), state["optimizer"]) == []
    assert state["scaler"] == run.numerics.scaler.state_dict()
    assert not any(name.startswith("head.mlp") or "relation" in name for name in model)


def test_a_hostile_pickle_is_not_run(tmp_path: Path) -> None:
    save(tmp_path, 1)
    witness = tmp_path / "witness"

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {witness}",)

    place = tmp_path / "step-000000001"
    torch.save({"step": Evil()}, place / "train.pt")
    with pytest.raises(Exception, match=r"[Ww]eights.only|Unsupported"):
        checkpoint.load(place)
    assert not witness.exists()


def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    assert [_step(place) for place in sorted(tmp_path.iterdir())] == [4, 5]


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def _fill(disk: Path, leave: int) -> None:
    free = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize - leave))


@pytest.mark.parametrize("leave", [0, 12 << 10, 32 << 10])
def test_a_full_disk_is_told_as_such_and_leaves_the_earlier_checkpoint(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, leave: int
) -> None:
    save(small_disk / "checkpoints", 1)
    _fill(small_disk, leave)
    for looks_first in (True, False):
        with monkeypatch.context() as patch:
            if not looks_first:
                # Another job may fill the disk just after the free space was looked at.
                patch.setattr(checkpoint, "_require_space", lambda *_: None)
            with pytest.raises(OSError) as caught:
                save(small_disk / "checkpoints", 2)
        assert caught.value.errno == errno.ENOSPC
        assert classify(caught.value) is FailureClass.STORAGE
        assert [path.name for path in (small_disk / "checkpoints").iterdir()] == ["step-000000001"]
        assert _step(small_disk / "checkpoints" / "step-000000001") == 1
    (small_disk / "ballast").unlink()
    save(small_disk / "checkpoints", 2)
    assert _step(small_disk / "checkpoints" / "step-000000002") == 2


def test_a_disk_that_turns_read_only_is_a_storage_fault_and_the_earlier_checkpoint_stays(
    small_disk: Path,
) -> None:
    save(small_disk / "checkpoints", 1)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError) as caught:
        save(small_disk / "checkpoints", 2)
    assert classify(caught.value) is FailureClass.STORAGE
    assert _step(small_disk / "checkpoints" / "step-000000001") == 1


def test_where_the_attempts_folder_is_away_nothing_is_made_and_storage_is_blamed(
    tmp_path: Path,
) -> None:
    with pytest.raises(OSError, match="the folder of the attempt is away") as caught:
        save(tmp_path / "attempt" / "checkpoints", 1)
    assert caught.value.errno in STORAGE_ERRORS
    assert not (tmp_path / "attempt").exists()


def test_the_model_file_is_named_as_the_rest_of_the_house_expects(tmp_path: Path) -> None:
    save(tmp_path, 1)
    names = {path.name for path in (tmp_path / "step-000000001").iterdir()}
    assert names == {MODEL, "ema.safetensors", "train.pt", "manifest.json"}

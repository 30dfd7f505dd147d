"""What a checkpoint must hold to be gone on from, and which one an attempt chooses."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.paths import RunFolder, Workspace
from vtjobs.workers.agent.resume import (
    NoCheckpoint,
    Parent,
    choose_resume,
    from_parent,
    parent_weights,
)
from vtjobs.workers.checkpoints import checkpoint
from vtjobs.workers.checkpoints.manifest import EMA, MANIFEST, MODEL, STATE, Rejected, verify

from ...support.training import ORIGIN, run_spec

RUN = "a" * 16
FILES = [MODEL, EMA, STATE]


def _save(folder: Path, step: int) -> Path:
    weights = {"weight": torch.full((48, 64), float(step))}
    place, _ = checkpoint.save(
        folder,
        run_id=RUN,
        epoch=0,
        step=step,
        model=weights,
        ema=weights,
        state={"step": step},
        origin=ORIGIN,
    )
    return place


def _attempt(
    run: RunFolder,
    number: int,
    steps: list[int],
    *,
    resumed: tuple[int, int] | None = None,
    end: str = "",
) -> None:
    """Write an attempt that published checkpoints."""
    run.attempt(number).mkdir(parents=True)
    journal = JournalWriter(run.journal(number, 0))
    attempt, step = resumed or (None, None)
    journal.write(
        "start", at=time.time(), attempt=number, resumed_attempt=attempt, resumed_step=step
    )
    for step in steps:
        _save(run.checkpoints(number), step)
        journal.write("checkpoint", at=time.time(), epoch=0, step=step, bytes=1)
    if end:
        journal.write("end", at=time.time(), state=end)
    journal.close()


def _flip(path: Path, where: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(where * (len(data) - 1))] ^= 0x10
    path.write_bytes(data)


def _zero_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-4096:] = bytes(len(data[-4096:]))
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "first bit flipped": lambda path: _flip(path, 0.0),
    "bit flipped in the middle": lambda path: _flip(path, 0.5),
    "last bit flipped": lambda path: _flip(path, 1.0),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "one byte more": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "a page of zeros": _zero_page,
    "missing": lambda path: path.unlink(),
    "a folder in its place": lambda path: (path.unlink(), path.mkdir()),
    "somebody else's pickle": lambda path: torch.save({"x": torch.zeros(3)}, path),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_rejected_and_the_one_before_it_taken(
    tmp_path: Path, name: str, damage: str
) -> None:
    run = RunFolder(tmp_path)
    _attempt(run, 1, [1, 2])
    DAMAGES[damage](run.checkpoint(1, 2) / name)
    told: list[tuple[int, int, str]] = []
    found = choose_resume(run, RUN, 2, rejected=lambda *event: told.append(event))
    assert found is not None and (found.attempt, found.manifest.step) == (1, 1)
    assert [(attempt, step) for attempt, step, _ in told] == [(1, 2)] and name in told[0][2]


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '{"run_id": "x"}', "{}", '{"run_id": 1, "files": 2}', "\x00" * 99],
)
def test_a_damaged_manifest_is_rejected(tmp_path: Path, text: str) -> None:
    place = _save(tmp_path, 1)
    (place / MANIFEST).write_text(text)
    with pytest.raises(Rejected):
        verify(place, run_id=RUN)


@pytest.mark.parametrize(
    "files",
    [None, [], {}, {"model.safetensors": 3}, {"model.safetensors": {}}, {"../../x": {"bytes": 1}}],
)
def test_a_manifest_with_nonsense_about_its_files_is_rejected(
    tmp_path: Path, files: object
) -> None:
    place = _save(tmp_path, 1)
    facts = json.loads((place / MANIFEST).read_text())
    (place / MANIFEST).write_text(json.dumps(facts | {"files": files}))
    with pytest.raises(Rejected):
        verify(place, run_id=RUN)


def test_another_runs_checkpoint_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=f"belongs to run {RUN}"):
        verify(_save(tmp_path, 1), run_id="b" * 16)


def test_where_every_checkpoint_is_damaged_the_run_does_not_start_anew(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    _attempt(run, 1, [1, 2])
    for step in (1, 2):
        _flip(run.checkpoint(1, step) / MODEL, 0.5)
    with pytest.raises(NoCheckpoint, match="none of the 2 checkpoints can be used"):
        choose_resume(run, RUN, 2, rejected=lambda *_: None)


def test_checkpoints_that_were_announced_and_are_gone_are_missed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    _attempt(run, 1, [1])
    (run.checkpoint(1, 1)).rename(tmp_path / "away")
    with pytest.raises(NoCheckpoint, match="missing"):
        choose_resume(run, RUN, 2, rejected=lambda *_: None)


def test_a_run_that_never_had_a_checkpoint_starts_from_nothing(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    _attempt(run, 1, [])
    assert choose_resume(run, RUN, 2, rejected=lambda *_: None) is None


def test_the_lineage_is_followed_past_attempts_without_a_usable_checkpoint(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    _attempt(run, 1, [1, 2])
    _attempt(run, 2, [3], resumed=(1, 2))
    _attempt(run, 3, [], resumed=(2, 3))
    _flip(run.checkpoint(2, 3) / STATE, 0.5)
    found = choose_resume(run, RUN, 4, rejected=lambda *_: None)
    assert found is not None and (found.attempt, found.manifest.step) == (1, 2)


def test_what_a_superseded_attempt_wrote_behind_the_cut_is_not_taken(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    _attempt(run, 1, [4, 5])
    # Attempt 2 went on from step 4; step 5 was written by a zombie.
    _attempt(run, 2, [], resumed=(1, 4))
    found = choose_resume(run, RUN, 3, rejected=lambda *_: None)
    assert found is not None and found.manifest.step == 4


def test_only_the_weights_of_a_parent_need_to_be_whole(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    _attempt(workspace.run(RUN), 1, [1, 2], end="completed")
    place = workspace.run(RUN).checkpoint(1, 2)
    (place / STATE).unlink()
    assert parent_weights(workspace, RUN) == place / MODEL
    _flip(place / MODEL, 0.5)
    with pytest.raises(NoCheckpoint, match="checksum mismatch"):
        parent_weights(workspace, RUN)


def test_a_parent_whose_weights_are_gone_names_the_way_to_make_them_anew(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    _attempt(workspace.run(RUN), 1, [], end="completed")
    with pytest.raises(NoCheckpoint, match=f"vtjobs rerun {RUN}"):
        parent_weights(workspace, RUN)


def test_a_teacher_is_needed_to_the_end_and_a_start_only_at_the_start(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    _attempt(workspace.run(RUN), 1, [1, 2], end="completed")
    start = changed(run_spec(seed=1), init_from=RUN)
    student = changed(run_spec(head="distill", params={"teacher": "stage"}), init_from=RUN)
    given = Parent(weights=parent_weights(workspace, RUN), spec=workspace.run(RUN).spec)
    assert from_parent(workspace, start, resumed=False) == given
    assert from_parent(workspace, start, resumed=True) is None
    assert from_parent(workspace, student, resumed=False) == given
    assert from_parent(workspace, student, resumed=True) == given
    assert from_parent(workspace, run_spec(), resumed=False) is None

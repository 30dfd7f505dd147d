"""What finished runs no longer need on disk: shown first, then removed."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...db import lookups
from ...db.engine import reading
from ...jobs.documents import Document
from ...jobs.run.states import RunState
from ...jobs.workspace.decoded_sets import unused
from ...jobs.workspace.lineage import completed_by
from ..loop.context import Context

# What stays of the final checkpoint of a completed run.
# With the bit per test image, which is small and cannot be had again without scoring.
WEIGHTS = (
    "model.safetensors",
    "ema.safetensors",
    "correct.safetensors",
    "chosen.safetensors",
    "manifest.json",
)


class Garbage(Document, frozen=True, kw_only=True):
    """One thing that may go."""

    run_id: str
    """Empty: of no run, but of the workspace."""
    path: str
    """A file, or a folder with all that is in it."""
    bytes: int
    """It takes on disk."""
    why: str
    """What it is."""


class GarbageList(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What finished runs no longer need."""

    schema_version: int = 1
    """Raised when a key is removed or changes its meaning."""
    bytes: int
    """Of all items."""
    removed: bool
    """Whether the items were removed."""
    items: list[Garbage]
    """Each by itself."""


def find(context: Context, run_ids: Sequence[str]) -> list[Garbage]:
    """Return what the settled runs among these no longer need.

    A run that may still go on keeps every checkpoint. A completed one keeps its final weights,
    which later stages, evaluation and export read; the optimizer's state and earlier checkpoints
    go.
    """
    with reading(context.ledger.engine) as connection:
        states = lookups.states_of(connection, run_ids)
    found: list[Garbage] = []
    for run_id in run_ids:
        if states.get(run_id) == RunState.COMPLETED:
            found += _of_completed(context, run_id)
    return found


def find_decoded(context: Context) -> list[Garbage]:
    """Return the decoded sets of images that no run has used for a week."""
    return [
        Garbage(run_id="", path=str(kept.path), bytes=kept.bytes, why="decoded images, unused")
        for kept in unused(context.workspace.decoded)
    ]


def _of_completed(context: Context, run_id: str) -> list[Garbage]:
    folder = context.workspace.run(run_id)
    final_attempt = completed_by(folder, 1 << 30)
    found: list[Garbage] = []
    for number in folder.attempts():
        published = sorted(folder.checkpoints(number).glob("step-*"))
        staged = sorted(folder.checkpoints(number).glob(".stage-*"))
        final = published.pop() if number == final_attempt and published else None
        found += [
            Garbage(run_id=run_id, path=str(path), bytes=_size(path), why="earlier checkpoint")
            for path in published
        ]
        found += [
            Garbage(run_id=run_id, path=str(path), bytes=_size(path), why="unfinished checkpoint")
            for path in staged
        ]
        if final is not None:
            rest = [path for path in final.iterdir() if path.name not in WEIGHTS]
            found += [
                Garbage(run_id=run_id, path=str(path), bytes=_size(path), why="optimizer state")
                for path in rest
            ]
    return found


def remove(garbage: Sequence[Garbage]) -> int:
    """Remove what was found; return the bytes freed."""
    freed = 0
    for item in garbage:
        path = Path(item.path)
        if path.is_dir():
            hidden = path.with_name(f".stage-old-{path.name.lstrip('.')}")
            os.rename(path, hidden)
            shutil.rmtree(hidden, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        freed += item.bytes
    return freed


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

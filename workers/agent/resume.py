"""Which checkpoint an attempt goes on from: the newest of its lineage that verifies."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...jobs.errors import VtjobsError
from ...jobs.run.settings import RecipeSettings
from ...jobs.run.spec import RunSpec
from ...jobs.workspace.lineage import candidates, completed_by
from ...jobs.workspace.paths import RunFolder, Workspace
from ..checkpoints.manifest import MODEL, Manifest, Missing, Rejected, verify
from ..environment import Origin


class NoCheckpoint(VtjobsError):
    """There were checkpoints, and none can be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """A verified checkpoint and where it comes from."""

    attempt: int
    folder: Path
    manifest: Manifest

    def is_exact(self, here: Origin, recipe: RecipeSettings) -> bool:
        """Return whether what goes on from it equals an uninterrupted run bit for bit."""
        return self.manifest.origin == here and (here.device == "cpu" or recipe.deterministic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The parent stage, for a run that starts from it or learns from it."""

    weights: Path
    spec: Path


def choose_resume(
    folder: RunFolder, run_id: str, attempt: int, *, rejected: Callable[[int, int, str], None]
) -> Resume | None:
    """Return the newest checkpoint below `attempt` that verifies, or None where there never was
    one.

    Raises:
        NoCheckpoint: all that there are were rejected; starting anew would hide the loss.
    """
    found = candidates(folder, attempt)
    reasons: list[str] = []
    for candidate in found:
        checkpoint = folder.checkpoint(candidate.attempt, candidate.step)
        try:
            manifest = verify(checkpoint, run_id=run_id)
        except Rejected as error:
            reasons.append(str(error))
            if not isinstance(error, Missing):
                rejected(candidate.attempt, candidate.step, str(error))
            continue
        return Resume(attempt=candidate.attempt, folder=checkpoint, manifest=manifest)
    if reasons:
        raise NoCheckpoint(f"none of the {len(found)} checkpoints can be used ({reasons[0]})")
    return None


def from_parent(workspace: Workspace, spec: RunSpec, *, resumed: bool) -> Parent | None:
    """Return what a run's ranks need of the parent stage: its final weights and its description.

    One that is its teacher is needed to the end, one that it starts from only at the start.

    Raises:
        NoCheckpoint: the weights are gone or damaged.
    """
    if spec.init_from is None or (resumed and not spec.learns_from_parent):
        return None
    return Parent(
        weights=parent_weights(workspace, spec.init_from), spec=workspace.run(spec.init_from).spec
    )


def parent_weights(workspace: Workspace, parent: str) -> Path:
    """Return the verified final weights of a parent run.

    Raises:
        NoCheckpoint: they are gone or damaged.
    """
    folder = workspace.run(parent)
    attempt = completed_by(folder, 1 << 30)
    for path in sorted(folder.checkpoints(attempt or 0).glob("step-*"), reverse=True):
        try:
            verify(path, run_id=parent, only=(MODEL,))
        except Rejected as error:
            raise NoCheckpoint(f"final weights of parent {parent}: {error}") from None
        return path / MODEL
    raise NoCheckpoint(
        f"final weights of parent {parent} are gone. Train it again with: vtjobs rerun {parent}"
    )

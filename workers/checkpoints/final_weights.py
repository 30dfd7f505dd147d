"""The final weights of a completed run."""

from dataclasses import dataclass
from pathlib import Path

from ...jobs.errors import VtjobsError
from ...jobs.run.spec import RunSpec
from ...jobs.workspace.lineage import completed_by
from ...jobs.workspace.paths import Workspace
from ...jobs.workspace.stored_grid import read_spec
from .manifest import MODEL, Manifest, Rejected, verify


class NoWeights(VtjobsError):
    """The run has no finished weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """A verified last checkpoint."""

    spec: RunSpec
    attempt: int
    folder: Path
    manifest: Manifest

    @property
    def weights(self) -> Path:
        """The backbone's weights; nothing of the head."""
        return self.folder / MODEL


def final_of(workspace: Workspace, run_id: str) -> Final:
    """Return a run's last checkpoint.

    Raises:
        NoWeights: the run has not completed, or its weights are gone or damaged.
    """
    folder = workspace.run(run_id)
    attempt = completed_by(folder, 1 << 30)
    if attempt is None:
        raise NoWeights(f"run {run_id} has not completed")
    newest = max(folder.checkpoints(attempt).glob("step-*"), default=folder.checkpoints(attempt))
    try:
        manifest = verify(newest, run_id=run_id, only=(MODEL,))
    except Rejected as error:
        raise NoWeights(f"run {run_id}: its final weights are unusable ({error})") from None
    spec = read_spec(folder)
    return Final(spec=spec, attempt=attempt, folder=newest, manifest=manifest)

"""Whether an attempt may start.

Claims, cancels, markers, its parent and what lower attempts have done.
"""

from ...jobs.run.spec import RunSpec
from ...jobs.run.states import AttemptState, FailureClass
from ...jobs.workspace.allocation import Task
from ...jobs.workspace.lineage import completed_by
from ...jobs.workspace.markers import closed
from ...jobs.workspace.paths import RunFolder, Workspace
from .outcome import Outcome


def claim_or_refuse(workspace: Workspace, task: Task, spec: RunSpec) -> Outcome | None:
    """Claim a run for an attempt.

    The claim is the fence of the whole system: a file that only one process can create.

    Returns:
        None where the attempt now owns the run, otherwise why it must not start. A refusal by a
        marker, a cancel or a missing parent leaves the run unclaimed.
    """
    folder, number = workspace.run(task.run_id), task.attempt
    if kept := closed(workspace, task.grid_id)(task.run_id):
        folder.offer()
        return _superseded(FailureClass.SKIPPED, kept.text)
    if folder.highest_cancel() >= number:
        return Outcome(
            state=AttemptState.CANCELLED,
            failure=FailureClass.CANCELLED,
            signature="cancelled by the user",
        )
    if spec.init_from is not None and completed_by(workspace.run(spec.init_from), 1 << 30) is None:
        folder.offer()
        return _superseded(FailureClass.SKIPPED, f"parent {spec.init_from} has not completed")
    is_ours = folder.highest_claim() == number if task.is_claimed else folder.claim(number)
    if not is_ours:
        return _superseded(
            FailureClass.SUPERSEDED, f"attempt {folder.highest_claim()} owns the run"
        )
    done = None if task.clean else completed_by(folder, number)
    if done is not None:
        return _superseded(FailureClass.SUPERSEDED, f"attempt {done} completed the run")
    return None


def overruled(folder: RunFolder, number: int) -> AttemptState | None:
    """Return `superseded` where a higher attempt has the run, `cancelled` where the user ended it,
    else None.

    What cannot be read at this moment is asked again later: it is no reason to end what trains.
    """
    try:
        if folder.highest_claim() > number:
            return AttemptState.SUPERSEDED
        return AttemptState.CANCELLED if folder.highest_cancel() >= number else None
    except OSError:
        return None


def _superseded(failure: FailureClass, signature: str) -> Outcome:
    return Outcome(state=AttemptState.SUPERSEDED, failure=failure, signature=signature)

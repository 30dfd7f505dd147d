"""What helps against a failure: a sentence, a command that can be pasted, or both."""

from collections.abc import Sequence

from ...jobs.run.states import FailureClass
from ...jobs.workspace.grid_settings import GridSettings
from .causes import Cause

# Without a question, `vtjobs retry` takes no more runs than this.
MOST_NAMED = 10
_NEW_RUNS = "and submit the grid file again"


def remedy(
    failure: FailureClass | None,
    cause: Cause,
    *,
    run_ids: Sequence[str],
    settings: GridSettings,
    where: str,
) -> str:
    """Return what to do about runs that ended in the same way.

    Args:
        failure: the class of the failure; None: no attempt says.
        cause: what ended them.
        run_ids: those that have ended.
        settings: of their grid.
        where: what a command that is printed ends with, see `Config.where`.
    """
    if settings.imported is not None:
        return "vtjobs did not train it: look where it was trained"
    runs = " ".join(run_id[:8] for run_id in run_ids)
    if len(run_ids) > MOST_NAMED:
        runs = f"{settings.grid_id} status=failed"
    retry = f"vtjobs retry {runs}{where}"
    if cause.place is not None and failure in (FailureClass.USER_ERROR, FailureClass.SETUP_ERROR):
        if cause.message.startswith(ModuleNotFoundError.__name__):
            return f"Install the module where runs train, then run: {retry}"
        if cause.place.part == "metric":
            # A run is the same whatever scores it.
            return f"Fix {cause.place} {_NEW_RUNS}, then run: {retry}"
        if cause.place.part:
            # Its source is a part of the run: the same run would fail again.
            return f"Fix {cause.place} {_NEW_RUNS}. A changed {cause.place.part} makes new runs"
        return f"Fix {cause.place}, then run: {retry}"
    if failure is FailureClass.OUT_OF_MEMORY:
        return _of_memory(cause, retry, settings)
    if failure is FailureClass.NO_CHECKPOINT:
        return f"vtjobs rerun {runs}{where}"
    log = f"vtjobs logs {run_ids[0][:8]}{where}"
    return _REMEDIES.get(failure, "{retry}").format(
        retry=retry, log=log, gc=f"vtjobs gc {settings.grid_id}{where}"
    )


_REMEDIES: dict[FailureClass | None, str] = {
    FailureClass.USER_ERROR: (
        "The same run would fail again. Find the cause in its log ({log}) and fix it, then run:"
        " {retry}"
    ),
    FailureClass.SETUP_ERROR: (
        f"Change the grid file {_NEW_RUNS}, or fix the installation, then run: {{retry}}"
    ),
    FailureClass.WALLTIME: (
        "Ask for more resources.walltime in the grid file, submit it again, then run: {retry}"
    ),
    FailureClass.DATA: "Repair the data, then run: {retry}",
    FailureClass.DATA_MISSING: "Bring the data back, then run: {retry}",
    FailureClass.DIVERGED: (
        "Lower train.lr, lengthen train.warmup_epochs, set train.clip_grad or use bf16 instead of"
        f" fp16, {_NEW_RUNS}. Changed settings make new runs"
    ),
    FailureClass.STORAGE: "Free space on the file system, such as with: {gc}. Then run: {retry}",
    FailureClass.REFUSED: (
        "Change what the scheduler refuses in the grid file, submit it again, then run: {retry}"
    ),
}


def _of_memory(cause: Cause, retry: str, settings: GridSettings) -> str:
    if not cause.was_raised:
        return (
            "Ask for more memory of the node or lower resources.pack in the grid file, submit it"
            f" again, then run: {retry}"
        )
    if settings.resources.per_gpu > 1 and settings.resources.gpus_per_node != 0:
        return (
            f"{settings.resources.per_gpu} runs share each GPU. Lower resources.per_gpu in the grid"
            f" file and submit it again, then run: {retry}"
        )
    if not settings.halve_micro_batch or settings.retries < 2:
        # Where one failure ends a run, no attempt is left for the half.
        keys = "halve_micro_batch: true" + (" and retries: 2" if settings.retries < 2 else "")
        return (
            f"Set {keys} in the grid file and submit it again. The same run then tries again with"
            " half the micro-batch. With BatchNorm that is refused: raise train.virtual_ranks or"
            f" lower train.batch_size {_NEW_RUNS}, which makes new runs"
        )
    return (
        f"Raise train.virtual_ranks or lower train.batch_size {_NEW_RUNS}, which makes new runs. Or"
        " set resources.gpu to a larger GPU and submit it again. To try once more with half the"
        f" micro-batch, run: {retry}"
    )

"""One submission through submitit, and what its outcome was."""

import contextlib
import io
import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ....jobs.errors import BadInput
from ....jobs.values import changed
from ....jobs.workspace.allocation import Allocation
from ....jobs.workspace.paths import Workspace
from ..base import Rehearsal, Submission, SubmitOutcome
from .job import asked, script, stored_script, submission, transport, withheld
from .shell import CommandFailed, ask, is_away, is_slow, reason_of

# SLURM's own words for "no", each with what helps.
REFUSALS = {
    "invalid partition": "See the partitions with: sinfo",
    "invalid account or account/partition combination": (
        "Set slurm.account; see: sacctmgr show associations"
    ),
    "invalid qos": "See the QOS with: sacctmgr show qos",
    "requested node configuration is not available": (
        "No node has that many GPUs or cores, or that much memory"
    ),
    "requested nodes are busy": "",
    "invalid job array specification": "",
    "invalid generic resource": (
        "resources.gpu names a kind of GPU that the partition does not have"
    ),
    "invalid feature specification": "slurm.constraint names a feature that no node has",
    "invalid node name": "slurm.exclude names a node that is not there",
    "invalid --": "",
    "requested time limit is invalid": "Ask for less resources.walltime",
    "requested partition configuration not available": "",
    "pathname of a file, directory or other parameter too long": "",
    "node count specification invalid": "",
    "more processors requested than permitted": "Lower slurm.cpus_per_gpu or resources.threads",
    "memory specification can not be satisfied": "Lower slurm.mem",
    "job dependency problem": "",
    "invalid reservation": "",
    "requested reservation is invalid": "",
    "access/permission denied": "",
    "user's group not permitted": "",
    "unrecognized option": "",
    "unrecognized --": "",
    "mutually exclusive": "",
    # What a site's own submit filter says no with; its sentence comes before.
    "unspecified error": "",
    "invalid license": "",
    "invalid wckey": "",
}
_LIMIT = re.compile(
    r"submitjob|maxsubmit|submit job limit|maxjobcount|job count limit|slurm temporarily"
    r" unable|inactive or drain",
    re.I,
)
# Any other limit of an account or QOS that is told at once is one that the request itself is over.
_OVER = re.compile(r"\b(QOS|Assoc)(Max|Min|Grp)\w+")
_POLICY = "job violates accounting/qos policy"


_STARTS = re.compile(r"to start at ([0-9]+)\b")

# A controller that has just started does not know its nodes yet, and says this of any request.
_YOUNG = "node configuration is not available"
YOUNG_TRIES, YOUNG_S = 2, 3.0
# Together with one more sbatch at its deadline this stays within the time a submitter may take.
PROMPT_S = 12.0


def submit(allocation: Allocation, workspace: Workspace) -> Submission:
    """Submit an allocation as one array; say whether SLURM has it.

    Raises:
        BadInput: there is no SLURM on this machine.
    """
    began = time.monotonic()
    found = _submit(allocation, workspace)
    for _ in range(YOUNG_TRIES):
        if found.outcome is not SubmitOutcome.REFUSED or _YOUNG not in found.reason.lower():
            break
        if time.monotonic() - began > PROMPT_S - YOUNG_S:
            break
        time.sleep(YOUNG_S)
        found = _submit(allocation, workspace)
    if found.outcome is not SubmitOutcome.REFUSED or not allocation.exclude:
        return found
    if time.monotonic() - began > PROMPT_S:
        return changed(found, outcome=SubmitOutcome.LATER)
    # No node may be left once the bad ones are avoided: a bad node is better than none.
    return _submit(changed(allocation, exclude=()), workspace)


def _submit(allocation: Allocation, workspace: Workspace) -> Submission:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    # First: a node may have to hand on before anybody looks here again.
    stored_script(allocation, workspace)
    # Not in the workspace: submitit gives a % of its path a meaning. sbatch keeps a copy of the
    # script.
    with TemporaryDirectory(prefix="vtjobs-", ignore_cleanup_errors=True) as folder:
        try:
            executor = transport(
                Path(folder),
                submission(allocation, workspace),
                allocation.token,
                withheld=withheld(allocation),
            )
        except RuntimeError:
            raise BadInput(
                "sbatch not found: is this a login node? (--backend local works anywhere)"
            ) from None
        try:
            # submitit prints what sbatch says; it comes back in the reply, and is said once there.
            with contextlib.redirect_stderr(io.StringIO()):
                job = executor._submit_command(script(allocation, workspace))  # type: ignore[attr-defined]
        except FailedJobError as error:
            found = outcome_of(str(error))
            if (
                len(allocation.tasks) > 1
                and "invalid job array specification" in found.reason.lower()
            ):
                # Too many elements for a limit that could not be asked for: fewer of them may pass.
                return changed(found, outcome=SubmitOutcome.LATER)
            return found
        except (FailedSubmissionError, OSError) as error:
            # sbatch may have been called all the same.
            return Submission(outcome=SubmitOutcome.UNCLEAR, reason=str(error))
    return Submission(outcome=SubmitOutcome.ACCEPTED, job_id=str(job.job_id))


def rehearse(allocation: Allocation, workspace: Workspace, *, deadline_s: float) -> Rehearsal:
    """Ask SLURM whether it would take such a job, and when it would start.

    Raises:
        BadInput: it would not, with its reason and what helps.
        SchedulerUnreachable: it could not be asked.
    """
    command = ["sbatch", "--test-only", *submission(allocation, workspace), "--wrap=true"]
    said = ""
    for left in range(YOUNG_TRIES, -1, -1):
        try:
            said = ask(command, deadline_s=deadline_s, with_errors=True)
            break
        except CommandFailed as error:
            found = outcome_of(error.stderr)
            if found.outcome is SubmitOutcome.UNCLEAR and is_away(error.stderr):
                raise
            if found.outcome is not SubmitOutcome.REFUSED:
                break
            if not left or _YOUNG not in found.reason.lower():
                raise BadInput(f"SLURM would refuse this: {found.reason}") from None
        time.sleep(YOUNG_S)
    estimate = _STARTS.search(said)
    return Rehearsal(
        asks=tuple(asked(allocation)), starts_at=float(estimate[1]) if estimate else None
    )


def outcome_of(text: str) -> Submission:
    """Say what sbatch's error text means: a clear no, a limit, or unclear."""
    reason = reason_of(text)
    if not text.strip():
        # It was killed at its deadline.
        return Submission(
            outcome=SubmitOutcome.UNCLEAR, reason="sbatch did not answer in time", is_slow=True
        )
    if is_away(text):
        return Submission(outcome=SubmitOutcome.UNCLEAR, reason=reason, is_slow=is_slow(text))
    if (over := _OVER.search(text)) and not _LIMIT.search(text):
        return Submission(outcome=SubmitOutcome.REFUSED, reason=f"{over[0]}: {reason}")
    if _LIMIT.search(text) or _POLICY in text.lower():
        return Submission(outcome=SubmitOutcome.LATER, reason=reason)
    for sign, fix in REFUSALS.items():
        if sign in text.lower():
            return Submission(
                outcome=SubmitOutcome.REFUSED, reason=f"{reason}. {fix}" if fix else reason
            )
    return Submission(outcome=SubmitOutcome.UNCLEAR, reason=reason)

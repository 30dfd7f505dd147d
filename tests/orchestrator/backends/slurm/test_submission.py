"""What became of a submission."""

import signal
from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.base import Submission, SubmitOutcome
from vtjobs.orchestrator.backends.slurm import job, submission
from vtjobs.orchestrator.backends.slurm.submission import outcome_of, submit

from ....support.scheduler import Commands

# What sbatch 22.05.8 wrote.
FAILED = "sbatch: error: Batch job submission failed: "
POLICY = (
    FAILED + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)


def given() -> Allocation:
    task = Task(run_id="0" * 16, attempt=1, grid_id="g")
    return Allocation(
        token="vtj-1",
        created_at=1.0,
        shape=Shape(backend="slurm"),
        lanes=1,
        tasks=((task,),),
        data_root="/data",
        site={"cpus": 1},
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "sbatch: error: invalid partition specified: nope\n"
            + FAILED
            + "Invalid partition name specified",
            (
                "Batch job submission failed: Invalid partition name specified. See the partitions"
                " with: sinfo"
            ),
        ),
        (
            FAILED + "Invalid account or account/partition combination specified",
            "Set slurm.account",
        ),
        (FAILED + "Invalid qos specification", "See the QOS with: sacctmgr show qos"),
        (FAILED + "Requested node configuration is not available", "No node has that many GPUs"),
        (
            "sbatch: error: Memory specification can not be satisfied\n"
            + FAILED
            + "Requested node configuration is not available",
            "No node has that many GPUs or cores, or that much memory",
        ),
        (
            "sbatch: error: CPU count per node can not be satisfied\n"
            + FAILED
            + "Requested node configuration is not available",
            "cores",
        ),
        (FAILED + "Invalid job array specification", "Invalid job array specification"),
        ("sbatch: error: Invalid generic resource (gres) specification", "resources.gpu"),
        (FAILED + "Invalid feature specification", "slurm.constraint"),
        (FAILED + "Invalid node name specified", "slurm.exclude"),
        (FAILED + "Requested reservation is invalid", "reservation is invalid"),
        (FAILED + "Invalid license specification", "Invalid license"),
        (FAILED + "Job dependency problem", "Job dependency problem"),
        (FAILED + "Pathname of a file, directory or other parameter too long", "too long"),
        ("sbatch: error: Invalid --time specification", "Invalid --time specification"),
        ("sbatch: error: Invalid --gres-flags specification", "Invalid --gres-flags specification"),
        ("sbatch: unrecognized option '--bogus'", "unrecognized option '--bogus'"),
        ('sbatch: error: unrecognized --hint argument "x", see --hint=help', "--hint"),
        (
            "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
            "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
        ),
        ("sbatch: error: QOSMaxGRESPerJob\n" + POLICY, "QOSMaxGRESPerJob"),
        (
            "sbatch: error: AssocMaxWallDurationPerJobLimit\n" + POLICY,
            "AssocMaxWallDurationPerJobLimit",
        ),
    ],
)
def test_a_clear_no_is_told_in_slurms_words_with_what_helps(text: str, reason: str) -> None:
    found = outcome_of(text)
    assert found.outcome is SubmitOutcome.REFUSED
    assert reason in found.reason
    assert "sbatch:" not in found.reason


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: AssocMaxSubmitJobLimit\n" + POLICY,
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\n" + POLICY,
        "sbatch: error: AssocGrpSubmitJobsLimit\n" + POLICY,
        POLICY,
        FAILED + "Slurm temporarily unable to accept job, sleeping and retrying",
        FAILED + "Required partition not available (inactive or drain)",
    ],
)
def test_a_limit_of_the_site_means_later(text: str) -> None:
    found = outcome_of(text)
    assert found.outcome is SubmitOutcome.LATER
    assert "Batch job submission failed: " in found.reason


@pytest.mark.parametrize(
    "text",
    [
        FAILED + "Unable to contact slurm controller (connect failure)",
        FAILED + "Socket timed out on send/recv operation",
        FAILED + "Zero Bytes were transmitted or received",
        FAILED + "Slurm backup controller in standby mode",
        FAILED + "Protocol authentication error",
        FAILED + "Unexpected message received",
        "Killed",
        "",
    ],
)
def test_whatever_is_not_a_clear_no_may_have_created_the_job(text: str) -> None:
    found = outcome_of(text)
    assert found.outcome is SubmitOutcome.UNCLEAR
    assert found.is_slow == ("timed out" in text or not text)


def test_a_sites_own_sentence_is_told_with_sbatchs_no() -> None:
    text = (
        "Traceback\n  File x\nsbatch: error: Name a QOS: see the wiki\n"
        + FAILED
        + "Unspecified error\nat the end"
    )
    found = outcome_of(text)
    assert found.outcome is SubmitOutcome.REFUSED
    assert (
        found.reason == "Name a QOS: see the wiki; Batch job submission failed: Unspecified error"
    )


# With a command in sbatch's place -----------------------------------------------------------------


@pytest.fixture
def sbatch(commands: Commands) -> Commands:
    commands.prints("srun", "")
    return commands


def submitted(workspace: Workspace) -> Submission:
    return submit(given(), workspace)


def test_an_accepted_submission_has_the_jobs_id_and_leaves_nothing_but_the_stored_script(
    sbatch: Commands, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sbatch.prints("sbatch", "Submitted batch job 4711")
    before = set(tmp_path.iterdir())
    assert submitted(workspace) == Submission(outcome=SubmitOutcome.ACCEPTED, job_id="4711")
    assert set(tmp_path.iterdir()) == before
    (stored,) = (workspace.root / "slurm").iterdir()
    assert stored.name.startswith("agent-")


def test_a_refusal_through_sbatch_is_read_from_its_error(
    sbatch: Commands, workspace: Workspace
) -> None:
    sbatch.fails("sbatch", FAILED + "Invalid qos specification")
    found = submitted(workspace)
    assert found.outcome is SubmitOutcome.REFUSED
    assert found.reason.startswith("Batch job submission failed: Invalid qos specification.")


@pytest.mark.parametrize(
    ("prompt_s", "outcome", "calls"), [(1e9, "accepted", 2), (-1.0, "later", 1)]
)
def test_a_bad_node_is_better_than_none_and_a_slow_no_for_its_sake_is_not_for_good(
    sbatch: Commands,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    prompt_s: float,
    outcome: str,
    calls: int,
) -> None:
    monkeypatch.setattr(submission, "PROMPT_S", prompt_s)
    no = f"echo '{FAILED}Invalid node name specified' >&2; exit 1"
    sbatch.answers(
        "sbatch", f'case "$*" in *--exclude*) {no};; *) echo "Submitted batch job 7";; esac'
    )
    found = submit(changed(given(), exclude=("gpu1",)), workspace)
    assert (found.outcome, len(sbatch.calls("sbatch"))) == (outcome, calls)


@pytest.mark.parametrize(
    "script",
    [
        f"echo '{FAILED}Socket timed out on send/recv operation' >&2; exit 1",
        "exit 1",
        "echo no number here",
        f"kill -{int(signal.SIGKILL)} $$",
    ],
)
def test_an_answer_without_an_id_and_without_a_no_is_unclear(
    sbatch: Commands, workspace: Workspace, script: str
) -> None:
    sbatch.answers("sbatch", script)
    assert submitted(workspace).outcome is SubmitOutcome.UNCLEAR


def test_a_submission_that_hangs_is_given_up_and_unclear(
    sbatch: Commands, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SUBMIT_DEADLINE_S", 1)
    sbatch.answers("sbatch", "exec sleep 60")
    found = submitted(workspace)
    assert (found.outcome, found.is_slow) == (SubmitOutcome.UNCLEAR, True)
    assert found.reason == "sbatch did not answer in time"


def test_a_machine_without_slurm_is_told_apart(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="sbatch not found: is this a login node"):
        submitted(workspace)

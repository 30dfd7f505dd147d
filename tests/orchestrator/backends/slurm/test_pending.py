"""Why a job waits, and whether waiting helps."""

import pytest

from vtjobs.orchestrator.backends.base import WaitKind
from vtjobs.orchestrator.backends.slurm.pending import explain

# Every reason of SLURM's source, 19.05 to 25.05. Limits exist of each kind of resource.
TRES = ("BB", "Billing", "Cpu", "Energy", "GRES", "License", "Mem", "Memory", "Node", "Unknown")
OWNERS = ("Assoc", "QOS")
WAIT = [
    *[f"{who}Grp{tres}{rest}" for who in OWNERS for tres in TRES for rest in ("", "Minutes", "RunMinutes", "Limit")],
    *[f"QOSMax{tres}PerUser" for tres in TRES],
    *[f"Max{tres}PerAccount" for tres in (*TRES, "Jobs", "SubmitJobs")],
    "None", "Resources", "Priority", "Dependency", "BeginTime", "Licenses", "Reservation", "JobArrayTaskLimit",
    "Cleaning", "Prolog", "NodeDown", "ReqNodeNotAvail, UnavailableNodes:gpu3", "SchedDefer", "FrontEndDown",
    "WaitingForScheduling", "AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit", "QOSJobLimit",
    "QOSResourceLimit", "QOSTimeLimit", "QOSUsageThreshold", "AccountingPolicy", "BurstBufferResources",
    "BurstBufferStageIn", "PowerNotAvail", "PowerReserved", "FedJobLock", "BlockMaxError", "BlockFreeAction",
    "AssocMaxJobsLimit", "AssocMaxSubmitJobLimit", "QOSMaxSubmitJobPerUserLimit", "QOSMaxNodePerUserLimit",
    "AssocGrpCPURunMinutesLimit", "AssocGrpCPUMinutesLimit", "AssocGrpJobsLimit", "AssocGrpWallLimit", "QOSGrpWallLimit",
    "AssocGrpSubmitJobsLimit", "QOSGrpCPUMinutesLimit", "QOSGrpCPURunMinutesLimit", "QOSGrpJobsLimit", "AssocJobLimit",
    "QOSGrpSubmitJobsLimit", "QOSMaxJobsPerUserLimit", "QOSMaxCpuPerUserLimit",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
]  # fmt: skip
ACT = [
    "JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch failed requeued held", "job requeued in held state",
    "user env retrieval failed requeued held", "PartitionDown", "PartitionInactive", "SystemFailure", "JobLaunchFailure",
    "NonZeroExitCode", "RaisedSignal", "TimeLimit", "InactiveLimit", "OutOfMemory", "BurstBufferOperation",
]  # fmt: skip
NEVER = [
    *[f"{who}Max{tres}{rest}" for who in OWNERS for tres in TRES for rest in ("PerJob", "PerNode", "MinutesPerJob")],
    *[f"{who}Max{tres}PerJobLimit" for who in OWNERS for tres in ("Cpu", "CpuMinutes", "Node", "WallDuration")],
    *[f"QOSMin{tres}" for tres in TRES], "QOSMinCpuNotSatisfied",
    "ReservationDeleted", "ReservationInvalid", "DependencyNeverSatisfied", "PartitionTimeLimit", "PartitionNodeLimit",
    "PartitionConfig", "BadConstraints", "Constraints", "AccountNotAllowed", "InvalidAccount", "InvalidQOS",
    "QOSNotAllowed", "DeadLine", "MaxMemPerLimit",
    "Job's account not permitted to use this partition (theirs allows theirs not lab",
    "Job's QOS not permitted to use this partition (elite denies normal including normal",
]  # fmt: skip


KINDS = {WaitKind.WAIT: WAIT, WaitKind.ACT: ACT, WaitKind.NEVER: NEVER}


@pytest.mark.parametrize("kind", KINDS)
def test_every_reason_says_whether_waiting_helps(kind: WaitKind) -> None:
    for reason in KINDS[kind]:
        says_whether_waiting_helps(reason, kind)


def says_whether_waiting_helps(reason: str, kind: WaitKind) -> None:
    found = explain(f"PENDING {reason}", job="34_5")
    assert found is not None
    assert (found.kind, found.reason) == (kind, reason), reason
    # Only the run is filled in later: `why` knows it.
    assert found.sentence and "{" not in found.sentence + found.action.replace("{run}", "")
    assert found.action and not found.sentence.startswith("SLURM says")


@pytest.mark.parametrize(
    "word", ["RUNNING", "COMPLETING", "COMPLETED", "", "CANCELLED by 0", "queued"]
)
def test_what_does_not_wait_needs_no_reason(word: str) -> None:
    assert explain(word) is None


@pytest.mark.parametrize("state", ["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"])
def test_a_job_that_waits_in_any_way_is_explained(state: str) -> None:
    found = explain(f"{state} JobHeldUser", job="34_5")
    assert found is not None and found.action == "scontrol release 34_5"


def test_a_job_that_was_just_submitted_has_no_reason_yet() -> None:
    found = explain("PENDING")
    assert found is not None and (found.kind, found.reason) == (WaitKind.WAIT, "None")


def test_a_reason_in_brackets_is_the_same_reason() -> None:
    assert explain("PENDING (Resources)") == explain("PENDING Resources")


def test_a_reason_that_nobody_knows_is_told_as_it_is_and_waited_for() -> None:
    found = explain("PENDING SomethingNew")
    assert found is not None
    assert (found.kind, found.sentence) == (WaitKind.WAIT, "SLURM says SomethingNew")


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("QOSMaxGRESPerJob", "one run asks for more than its QOS allows"),
        ("AssocMaxGRESPerJob", "one run asks for more than its account allows"),
        ("QOSMaxJobsPerUserLimit", "its QOS has reached its limit of running jobs"),
        ("AssocGrpGRES", "its account has reached the limit that its members share"),
        ("QOSMaxWallDurationPerJobLimit", "it asks for more time than its QOS allows"),
    ],
)
def test_a_limit_says_whose_it_is(reason: str, says: str) -> None:
    found = explain(f"PENDING {reason}")
    assert found is not None and says in found.sentence


def test_too_long_a_walltime_is_told_as_such() -> None:
    found = explain("PENDING AssocMaxWallDurationPerJobLimit")
    assert found is not None and found.action == "Lower resources.walltime"


@pytest.mark.parametrize("word", ["SUSPENDED", "STOPPED"])
def test_a_job_that_was_suspended_says_who_can_end_that(word: str) -> None:
    found = explain(word, job="7")
    assert found is not None and found.kind is WaitKind.ACT
    assert "administrators" in found.action

"""The reasons for which a job waits, of SLURM 19.05 to 25.05, as data.

Those that are plain words, those that are sentences, and the families of limits.
"""

from ..base import WaitKind

_WAIT, _NEVER, _ACT = WaitKind.WAIT, WaitKind.NEVER, WaitKind.ACT

Meaning = tuple[WaitKind, str, str]
"""Whether waiting helps, a sentence, and what to do."""

# What squeue prints, and what it means for a run of a grid.
REASONS: dict[str, Meaning] = {
    "None": (_WAIT, "the scheduler has not looked at it yet", "Wait a minute, and look again"),
    "Resources": (
        _WAIT,
        "it is next in the queue and waits for free nodes",
        "See: squeue --start -j {job}",
    ),
    "Priority": (
        _WAIT,
        "jobs with higher priority are ahead of it",
        "See: squeue --start -j {job}",
    ),
    "Dependency": (
        _WAIT,
        "it waits for another job to end: its parent stage's, or one of slurm.dependency",
        "See: scontrol show job {job}",
    ),
    "BeginTime": (_WAIT, "its earliest start has not come yet", "See: squeue --start -j {job}"),
    "Licenses": (_WAIT, "a licence that it asks for is in use", "See: scontrol show licenses"),
    "Reservation": (_WAIT, "its reservation has not begun", "See: scontrol show reservation"),
    "ReservationDeleted": (
        _NEVER,
        "its reservation was deleted",
        "Change slurm.reservation and submit again",
    ),
    "JobArrayTaskLimit": (
        _WAIT,
        "slurm.array_parallelism is reached: other elements of its array are running",
        "Raise slurm.array_parallelism before the next submission",
    ),
    "Cleaning": (_WAIT, "its node is being cleaned up", "See: scontrol show job {job}"),
    "Prolog": (_WAIT, "its node runs the site's prolog", "See: scontrol show job {job}"),
    "NodeDown": (_WAIT, "a node that it needs is down", "See: sinfo -R"),
    "ReqNodeNotAvail": (
        _WAIT,
        "nodes that it may run on are down, drained or reserved",
        "See: sinfo -R",
    ),
    "SchedDefer": (_WAIT, "the scheduler deferred it", "See: squeue --start -j {job}"),
    "FrontEndDown": (_WAIT, "the front end is down", "See: sinfo -R"),
    "JobHeldUser": (_ACT, "held by its user in SLURM", "scontrol release {job}"),
    "JobHeldAdmin": (_ACT, "held by an administrator", "Ask the site's administrators"),
    "JobHoldMaxRequeue": (
        _ACT,
        "SLURM requeued it too often and holds it",
        "Run: vtjobs cancel {run}. Once it is cancelled, run: vtjobs retry {run}",
    ),
    "PartitionDown": (
        _ACT,
        "its partition is down",
        "Wait for the site, or change slurm.partition and submit again",
    ),
    "PartitionInactive": (
        _ACT,
        "its partition takes no jobs at present",
        "Change slurm.partition and submit again",
    ),
    "DependencyNeverSatisfied": (
        _NEVER,
        "its dependency on another job can never be satisfied",
        "Run: vtjobs cancel {run}. Once it is cancelled, run: vtjobs retry {run}",
    ),
    "PartitionTimeLimit": (
        _NEVER,
        "it asks for more time than its partition allows",
        "Lower resources.walltime",
    ),
    "PartitionNodeLimit": (
        _NEVER,
        "it asks for more nodes than its partition allows",
        "Lower resources.nodes",
    ),
    "PartitionConfig": (
        _NEVER,
        "its partition cannot serve what it asks for",
        "Lower resources.walltime or nodes",
    ),
    "BadConstraints": (
        _NEVER,
        "no node has what it asks for",
        "Change slurm.constraint or resources",
    ),
    "AccountNotAllowed": (
        _NEVER,
        "its account may not use this partition",
        "Change slurm.account or partition",
    ),
    "InvalidAccount": (_NEVER, "its account is not valid", "Change slurm.account"),
    "InvalidQOS": (_NEVER, "its QOS is not valid", "Change slurm.qos"),
    "QOSNotAllowed": (_NEVER, "its QOS is not allowed here", "Change slurm.qos"),
    "DeadLine": (_NEVER, "it can no longer end before its deadline", "Submit again"),
    "WaitingForScheduling": (
        _WAIT,
        "the scheduler has not looked at it yet",
        "Wait a minute, and look again",
    ),
    "AssociationJobLimit": (
        _WAIT,
        "its account has reached its limit of running jobs",
        "See: sacctmgr show associations",
    ),
    "AssociationResourceLimit": (
        _WAIT,
        "its account has reached its limit of resources",
        "See: sacctmgr show associations",
    ),
    "AssociationTimeLimit": (_WAIT, "its account has used up its time", "See: sshare"),
    "QOSJobLimit": (
        _WAIT,
        "its QOS has reached its limit of running jobs",
        "See: sacctmgr show qos",
    ),
    "QOSResourceLimit": (
        _WAIT,
        "its QOS has reached its limit of resources",
        "See: sacctmgr show qos",
    ),
    "QOSTimeLimit": (_WAIT, "its QOS has used up its time", "See: sacctmgr show qos"),
    "QOSUsageThreshold": (_WAIT, "its account has used more than its QOS asks for", "See: sshare"),
    "AccountingPolicy": (
        _WAIT,
        "a limit of its account or QOS holds it back",
        "See: sacctmgr show associations, sacctmgr show qos",
    ),
    "MaxMemPerLimit": (
        _NEVER,
        "it asks for more memory than a job may have on one node",
        "Lower slurm.mem",
    ),
    "ReservationInvalid": (
        _NEVER,
        "its reservation cannot serve it",
        "Change slurm.reservation and submit again",
    ),
    "Constraints": (
        _NEVER,
        "no node has the features that it asks for",
        "Change slurm.constraint and submit again",
    ),
    "BurstBufferResources": (
        _WAIT,
        "it waits for room in the burst buffer",
        "See: scontrol show burstbuffer",
    ),
    "BurstBufferStageIn": (
        _WAIT,
        "its data is being staged into the burst buffer",
        "See: scontrol show burstbuffer",
    ),
    "BurstBufferOperation": (
        _ACT,
        "an operation of the burst buffer failed",
        "See: scontrol show burstbuffer",
    ),
    "PowerNotAvail": (
        _WAIT,
        "the cluster has no power to spare at present",
        "See: squeue --start -j {job}",
    ),
    "PowerReserved": (
        _WAIT,
        "power is reserved for other jobs at present",
        "See: squeue --start -j {job}",
    ),
    "FedJobLock": (
        _WAIT,
        "a cluster of the federation is deciding about it",
        "See: squeue --start -j {job}",
    ),
    "BlockMaxError": (_WAIT, "its nodes have too many errors", "See: sinfo -R"),
    "BlockFreeAction": (_WAIT, "its nodes are being freed", "See: squeue --start -j {job}"),
    "SystemFailure": (
        _ACT,
        "SLURM or a file system failed under it",
        "Ask the site's administrators",
    ),
    "JobLaunchFailure": (_ACT, "it could not be launched", "scontrol release {job}"),
    "NonZeroExitCode": (
        _ACT,
        "it ended with an error before, and SLURM keeps it",
        "Run: vtjobs cancel {run}. Once it is cancelled, run: vtjobs retry {run}",
    ),
    "RaisedSignal": (
        _ACT,
        "a signal ended it before, and SLURM keeps it",
        "Run: vtjobs cancel {run}. Once it is cancelled, run: vtjobs retry {run}",
    ),
    "TimeLimit": (
        _ACT,
        "it reached its walltime before, and SLURM keeps it",
        "Run: vtjobs cancel {run}. Once it is cancelled, run: vtjobs retry {run}",
    ),
    "InactiveLimit": (
        _ACT,
        "it was inactive for too long, and SLURM keeps it",
        "Run: vtjobs cancel {run}. Once it is cancelled, run: vtjobs retry {run}",
    ),
    "OutOfMemory": (
        _ACT,
        "it ran out of memory before, and SLURM keeps it",
        "Raise slurm.mem and submit again",
    ),
}
# Where SLURM has more to say, it prints a sentence that begins with one of these.
SENTENCES: dict[str, Meaning] = {
    "Nodes required for job are DOWN": (
        _WAIT,
        "its nodes are down, drained or given to others first",
        "See: sinfo -R",
    ),
    "job requeued in held state": (
        _ACT,
        "SLURM requeued it and holds it",
        "scontrol release {job}",
    ),
    "launch failed requeued held": (
        _ACT,
        "its launch failed and SLURM holds it",
        "scontrol release {job}",
    ),
    "user env retrieval failed requeued held": (
        _ACT,
        "SLURM could not read its environment and holds it",
        "scontrol release {job}",
    ),
    "Job's account not permitted to use this partition": (
        _NEVER,
        "its account may not use this partition",
        "Change slurm.account or partition",
    ),
    "Job's QOS not permitted to use this partition": (
        _NEVER,
        "its QOS is not allowed in this partition",
        "Change slurm.qos or partition",
    ),
}
# The limits of an account, of a QOS, or of an account within a QOS. One on a single job never
# lifts; one on all of them together does. `{who}` stands for whose limit it is.
_WHO = r"(?P<who>QOS|Assoc|(?=Max\w+PerAccount\Z))"
FAMILIES: dict[str, Meaning] = {
    _WHO + r"MaxWall\w*": (
        _NEVER,
        "it asks for more time than {who} allows",
        "Lower resources.walltime",
    ),
    _WHO + r"Min\w+": (
        _NEVER,
        "one run asks for less than {who} demands",
        "Ask for more: resources.gpus_per_node, slurm.cpus_per_gpu or slurm.mem",
    ),
    _WHO + r"Max\w*(PerJob|PerNode)(Limit)?\Z": (
        _NEVER,
        "one run asks for more than {who} allows",
        "Ask for less: resources.gpus_per_node, nodes or walltime, slurm.cpus_per_gpu or slurm.mem",
    ),
    _WHO + r"Grp\w*": (
        _WAIT,
        "{who} has reached the limit that its members share",
        "See: sshare, sacctmgr show qos",
    ),
    _WHO + r"Max\w*": (
        _WAIT,
        "{who} has reached its limit of running jobs or resources",
        "See: sacctmgr show associations, sacctmgr show qos",
    ),
    _WHO + r"\w*": (
        _WAIT,
        "it waits because of a limit of {who}",
        "See: sacctmgr show associations, sacctmgr show qos",
    ),
}

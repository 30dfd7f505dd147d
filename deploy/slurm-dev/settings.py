"""What a private cluster consists of, as text.

Its options, SLURM's configuration files and its daemons' commands.
"""

import getpass
import socket
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from profiles import PROFILES, Nodes, Profile

# SLURM waits half a minute and more in many places; a test of what happens after a fault should
# not.
FAST_TIMERS = """
SlurmdTimeout=20
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1
"""
FAST_MIN_JOB_AGE = 30
# Jobs of nobody here may enter them, and the controller takes them all the same.
CLOSED_PARTITIONS = """\
PartitionName=theirs AllowAccounts=theirs
PartitionName=elite AllowQos=elite
PartitionName=staff AllowGroups=nogroup
"""
# The database is made again from nothing in a second: it need not survive a crash of the machine.
DATABASE_OPTIONS = [
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-method=nosync",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user chooses once, when the folder is new. None leaves it to the profile."""

    profile: str = "default"
    nodes: int | None = None
    """How many nodes of the profile's first kind."""
    accounting: bool | None = None
    max_array_size: int | None = None
    grace: int = 0
    """Seconds between a preempted job's TERM and its KILL."""
    preempt_mode: str = "REQUEUE"
    fast: bool = False

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    @property
    def shape(self) -> Profile:
        """The profile, with what was chosen otherwise."""
        made = PROFILES[self.profile]
        if self.nodes is not None:
            first, *others = made.nodes
            made = replace(made, nodes=(replace(first, count=self.nodes), *others))
        if self.accounting is not None:
            made = replace(made, accounting=self.accounting)
        if self.max_array_size is not None:
            made = replace(made, max_array_size=self.max_array_size)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """One process of the cluster: its command and what its environment needs."""

    argv: list[str]
    env: dict[str, str]


def nodes_by_kind(shape: Profile) -> list[tuple[Nodes, list[str]]]:
    """Return the names of each kind's nodes; kinds of one name are counted through."""
    found, next_of = [], Counter[str]()
    for kind in shape.nodes:
        first = next_of[kind.name]
        names = [f"{kind.name}{first + index}" for index in range(kind.count)]
        next_of[kind.name] += kind.count
        found.append((kind, names))
    return found


def node_names(options: Options) -> list[str]:
    return [name for _, names in nodes_by_kind(options.shape) for name in names]


def most_gpus(options: Options) -> int:
    """Return the number of GPUs of the node that has most."""
    return max(kind.gpus for kind in options.shape.nodes)


def ports_needed(options: Options) -> int:
    """Return how many ports the cluster listens on: the controller, accounting and each node."""
    return 2 + len(node_names(options))


def slurm_conf(folder: Path, options: Options, ports: list[int]) -> str:
    """Return slurm.conf. Daemons listen on the loopback address only."""
    user = getpass.getuser()
    host = socket.gethostname().split(".")[0]
    shape = options.shape
    text = f"""\
ClusterName=dev
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.own-pid
SlurmdPidFile={folder}/run/%n.own-pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
SchedulerType=sched/backfill
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=1
MessageTimeout=10
MaxArraySize={shape.max_array_size}
EnforcePartLimits={shape.enforce_part_limits}
MaxJobCount=100000
SlurmdParameters=config_overrides
"""
    text += FAST_TIMERS if options.fast else ""
    if shape.def_mem_per_cpu is not None:
        text += f"DefMemPerCPU={shape.def_mem_per_cpu}\n"
    if (age := shape.min_job_age or (FAST_MIN_JOB_AGE if options.fast else None)) is not None:
        text += f"MinJobAge={age}\n"
    return (
        text
        + accounting_lines(folder, shape, ports)
        + node_lines(shape, ports)
        + partition_lines(options)
        + (type_lines(shape) if shape.by_type else "")
        + (CLOSED_PARTITIONS if shape.closed else "")
    )


def accounting_lines(folder: Path, shape: Profile, ports: list[int]) -> str:
    if not shape.accounting:
        return "AccountingStorageType=accounting_storage/none\n"
    return f"""
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[1]}
AccountingStoragePass={folder}/run/munge.socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
"""


def node_lines(shape: Profile, ports: list[int]) -> str:
    places = iter(ports[2:])
    lines = [
        node_line(kind, name, next(places))
        for kind, names in nodes_by_kind(shape)
        for name in names
    ]
    return "\n" + "\n".join(lines) + "\n"


def node_line(kind: Nodes, name: str, port: int) -> str:
    gres = f" Gres=gpu:{kind.gpu}:{kind.gpus} Feature={kind.gpu}" if kind.gpus else ""
    return (
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port}"
        f" CPUs={kind.cpus} RealMemory={kind.memory_mb}{gres} State=UNKNOWN"
    )


def partition_lines(options: Options) -> str:
    """Return the partitions: a job of a higher tier preempts those of `low`, and nobody else."""
    low = f"PriorityTier=1 PreemptMode={options.preempt_mode} GraceTime={options.grace}"
    return f"""
PartitionName=DEFAULT Nodes=ALL MaxTime=1-00:00:00 DefaultTime=01:00:00 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=gpu Default=YES
PartitionName=low {low}
PartitionName=high PriorityTier=20 PreemptMode=OFF
PartitionName=whole PriorityTier=10 OverSubscribe=EXCLUSIVE
PartitionName=short MaxTime=00:10:00 DefaultTime=00:05:00 OverSubscribe=NO
PartitionName=down State=DOWN MaxTime=1-00:00:00 DefaultTime=01:00:00
"""


def type_lines(shape: Profile) -> str:
    """Return a partition for each kind of node: of its type of GPU, or of its name without one."""
    return "".join(
        f"PartitionName={kind.gpu or kind.name} Nodes={','.join(names)}\n"
        for kind, names in nodes_by_kind(shape)
    )


def gres_conf(folder: Path, options: Options) -> str:
    return "".join(
        f"NodeName={name} Name=gpu Type={kind.gpu} File={folder}/dev/nvidia[0-{kind.gpus - 1}]\n"
        for kind, names in nodes_by_kind(options.shape)
        for name in names
        if kind.gpus
    )


def slurmdbd_conf(folder: Path, ports: list[int]) -> str:
    return f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={ports[1]}
SlurmUser={getpass.getuser()}
PidFile={folder}/run/slurmdbd.own-pid
LogFile={folder}/log/slurmdbd.log
DebugLevel=verbose
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


def daemons(folder: Path, options: Options) -> dict[str, Daemon]:
    """Return the cluster's daemons in the order in which they start.

    All stay in the foreground of our own doing.
    """
    conf = folder / "slurm.conf"
    munge = [
        "munged",
        "--foreground",
        "--force",
        "--num-threads=4",
        f"--socket={folder}/run/munge.socket",
        f"--key-file={folder}/munge.key",
        f"--pid-file={folder}/run/munged.own-pid",
        f"--log-file={folder}/log/munged.log",
        f"--seed-file={folder}/state/munge.seed",
    ]
    found = {"munged": Daemon(argv=munge, env={})}
    if options.shape.accounting:
        database = [
            "mariadbd",
            "--no-defaults",
            f"--datadir={folder}/database",
            f"--socket={folder}/run/mariadb.socket",
            "--skip-networking",
            f"--user={getpass.getuser()}",
            "--skip-log-bin",
            f"--pid-file={folder}/run/mariadbd.own-pid",
            *DATABASE_OPTIONS,
        ]
        found["mariadbd"] = Daemon(argv=database, env={})
        # slurmdbd.conf has no word for the database's socket: the client library takes it from
        # here.
        socket_of = {"MYSQL_UNIX_PORT": f"{folder}/run/mariadb.socket"}
        found["slurmdbd"] = Daemon(argv=["slurmdbd", "-D"], env=socket_of)
    found["slurmctld"] = Daemon(argv=["slurmctld", "-D", "-f", str(conf)], env={})
    for name in node_names(options):
        found[name] = Daemon(argv=["slurmd", "-D", "-N", name, "-f", str(conf)], env={})
    return found

"""What a private cluster consists of, as text.

Its options, SLURM's configuration files and its daemons' commands.
"""

import getpass
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

GPUS_PER_NODE = 8
CPUS_PER_NODE = 32
MEMORY_MB = 256_000

# SLURM waits half a minute and more in many places; a test of what happens after a fault should
# not.
FAST_TIMERS = """
SlurmdTimeout=20
KillWait=5
MinJobAge=30
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1
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
    """What a user chooses once, when the folder is new."""

    nodes: int = 4
    accounting: bool = True
    max_array_size: int = 1001
    grace: int = 0
    """Seconds between a preempted job's TERM and its KILL."""
    preempt_mode: str = "REQUEUE"
    fast: bool = False

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """One process of the cluster: its command and what its environment needs."""

    argv: list[str]
    env: dict[str, str]


def node_names(options: Options) -> list[str]:
    return [f"gpu{index}" for index in range(options.nodes)]


def ports_needed(options: Options) -> int:
    """Return how many ports the cluster listens on: the controller, accounting and each node."""
    return 2 + options.nodes


def slurm_conf(folder: Path, options: Options, ports: list[int]) -> str:
    """Return slurm.conf. Daemons listen on the loopback address only."""
    user = getpass.getuser()
    host = socket.gethostname().split(".")[0]
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
DefMemPerCPU=1000
GresTypes=gpu
SchedulerType=sched/backfill
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=1
MessageTimeout=10
MaxArraySize={options.max_array_size}
MaxJobCount=100000
SlurmdParameters=config_overrides
"""
    text += FAST_TIMERS if options.fast else ""
    return (
        text
        + accounting_lines(folder, options, ports)
        + node_lines(options, ports)
        + partition_lines(options)
    )


def accounting_lines(folder: Path, options: Options, ports: list[int]) -> str:
    if not options.accounting:
        return "AccountingStorageType=accounting_storage/none\n"
    return f"""
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[1]}
AccountingStoragePass={folder}/run/munge.socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
"""


def node_lines(options: Options, ports: list[int]) -> str:
    shape = (
        f"CPUs={CPUS_PER_NODE} RealMemory={MEMORY_MB} Gres=gpu:v100:{GPUS_PER_NODE} State=UNKNOWN"
    )
    address = "NodeHostname=localhost NodeAddr=127.0.0.1"
    lines = [
        f"NodeName={name} {address} Port={port} {shape}"
        for name, port in zip(node_names(options), ports[2:], strict=True)
    ]
    return "\n" + "\n".join(lines) + "\n"


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


def gres_conf(folder: Path, options: Options) -> str:
    return "".join(
        f"NodeName={name} Name=gpu Type=v100 File={folder}/dev/nvidia[0-{GPUS_PER_NODE - 1}]\n"
        for name in node_names(options)
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
    if options.accounting:
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

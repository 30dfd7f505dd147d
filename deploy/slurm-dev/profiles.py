"""The shapes that a private cluster can have, each by its name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Nodes that are alike. Nothing of them exists but their names."""

    name: str = "gpu"
    """What their names begin with. Numbers follow, counted through all kinds of that name."""
    count: int = 4
    gpu: str = "v100"
    gpus: int = 8
    cpus: int = 32
    memory_mb: int = 256_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one QOS or association allows a user, in sacctmgr's own words."""

    qos: str | None = None
    """A QOS beside `normal`, which has no limits; None for the user's association."""
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a site has decided: its nodes, its partitions and what it allows."""

    nodes: tuple[Nodes, ...] = (Nodes(),)
    by_type: bool = False
    """Whether each kind of node has a partition of its own beside those of all nodes."""
    closed: bool = False
    """Whether there are partitions that nobody here may enter; SLURM takes jobs for them."""
    accounting: bool = True
    max_array_size: int = 1001
    enforce_part_limits: str = "NO"
    """ALL refuses at submission what a partition can never run. NO lets it wait for ever."""
    def_mem_per_cpu: int | None = 1000
    """Megabytes of a job that asks for none; None gives it all memory of its nodes."""
    min_job_age: int | None = None
    """Seconds for which squeue lists a job that has ended; None leaves it to the timers."""
    limits: tuple[Limits, ...] = ()


DEFAULT = Profile()
"""A laboratory's own cluster: four equal nodes, accounting, no limits."""

MIXED = Profile(
    nodes=(
        Nodes(count=4),
        Nodes(count=2, gpu="a100", gpus=4, cpus=64, memory_mb=512_000),
        Nodes(name="cpu", count=1, gpu="", gpus=0, cpus=128, memory_mb=1_000_000),
    ),
    by_type=True,
    closed=True,
    def_mem_per_cpu=None,
)
"""A cluster that has grown: two types of GPU, and the largest node has none. Partitions for each
type, and others that hold all nodes; three are other people's. No memory for who asks for none.
"""

TIGHT = Profile(
    max_array_size=7,
    limits=(
        Limits(values=("MaxSubmitJobs=12", "MaxJobs=6")),
        Limits(qos="few", values=("MaxSubmitJobsPerUser=3", "MaxJobsPerUser=1")),
    ),
)
"""A computing centre's share for one user: small arrays, limits of the association and of a QOS.
SLURM asks a QOS first: where that has a limit, the association's is not looked at. Jobs that no
partition can run are accepted and wait.
"""

BARE = Profile(def_mem_per_cpu=None, min_job_age=5)
"""SLURM as it is installed: a job without a wish for memory has its nodes' whole memory. The
controller forgets a job five seconds after its end.
"""

NO_ACCOUNTING = Profile(accounting=False)
"""Neither slurmdbd nor database: no `sacct`, no limits, no accounts."""

PROFILES = {
    "default": DEFAULT,
    "mixed": MIXED,
    "tight": TIGHT,
    "bare": BARE,
    "no-accounting": NO_ACCOUNTING,
}

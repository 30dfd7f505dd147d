"""What a grid file and vtjobs.yaml may say of SLURM: partition, account, modules…"""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ....jobs.config.resources import Duration
from ....jobs.config.site import PROGRAM, AsList, Lines, Name, Program, SiteSettings, Word, matching
from ....jobs.errors import suggest

# Names of partitions and nodes (with ranges), features (with & | * and counts), modules.
_NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,-]{0,255}\Z")
_NODES = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,\[\]-]{0,1023}\Z")
_FEATURES = re.compile(r"[A-Za-z0-9(\[][A-Za-z0-9_.&|*(),\[\]-]{0,255}\Z")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]{0,127}\Z")
_AMOUNT = re.compile(r"[0-9]{1,9}[KMGT]?\Z")
_VALUE = re.compile(r"[A-Za-z0-9_.,:=@+-]{1,255}\Z")
_GRES = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_.-]{1,63}){0,2}\Z")
_DEPENDENCY = re.compile(
    r"(after|afterany|afterok|afternotok|afterburstbuffer)(:[0-9]{1,10}(_[0-9]{1,10})?(\+[0-9]{1,6})?)+\Z"
)
# Of srun, what Pyxis and a container's mounts need and what binds a task to its node's parts.
_SRUN = re.compile(
    r"--(no-)?container-[a-z-]{1,40}(=[A-Za-z0-9_./:#=,@%+^-]{1,1000})?\Z"
    r"|--(mpi|cpu-bind|mem-bind|gpu-bind)=[A-Za-z0-9_.,:-]{1,100}\Z"
)

# Options of sbatch that decide nothing that vtjobs decides.
EXTRA = frozenset(
    "licenses mail-type mail-user nice switches tmp hint gres-flags mem-per-gpu mem-per-cpu wckey "
    "begin priority threads-per-core network profile acctg-freq comment deadline spread-job".split()
)
OURS = frozenset(
    "output error array job-name nodes ntasks ntasks-per-node gpus gpus-per-node gres time signal"
    " requeue no-requeue dependency wrap chdir export kill-on-invalid-dep open-mode parsable uid"
    " gid cpus-per-task exclusive".split()
)


class Slurm(SiteSettings):
    """SLURM settings, in a grid's `backend` block or in the configuration."""

    partition: Annotated[str, matching(_NAMES)] | None = Field(
        None, description="partition, or several separated by commas; default: the cluster's"
    )
    account: Name | None = Field(None, description="account to charge")
    qos: Name | None = Field(None, description="quality of service")
    reservation: Name | None = Field(None, description="reservation")
    constraint: Annotated[str, matching(_FEATURES)] | None = Field(
        None,
        description="required node features, such as v100|a100",
    )
    exclude: Annotated[str, matching(_NODES)] | None = Field(
        None,
        description="nodes to avoid, such as gpu[3,7-9]",
    )
    array_parallelism: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="elements of one job array that run at a time; max_running limits the grid",
    )
    node_gpus: int | None = Field(
        None,
        ge=1,
        le=64,
        description="GPUs of one node; default: as SLURM reports",
    )
    cpus_per_gpu: int | None = Field(
        None,
        ge=1,
        le=512,
        description="CPU cores per GPU; default: the node's cores divided by its GPUs",
    )
    mem: Annotated[str, matching(_AMOUNT)] | None = Field(
        None,
        description=(
            "memory per node, such as 200G; default: the site's default, or without one the share "
            "of the job's GPUs; all memory if the node is allocated exclusively"
        ),
    )
    lead: Duration = Field(
        120,
        description="time before the walltime at which runs save and stop, at most 1/4 of it",
    )
    gpu_option: Literal["gpus-per-node", "gres", "gpus"] = Field(
        "gpus-per-node",
        description="option of sbatch that asks for GPUs; gpus only for runs on one node",
    )
    gres: Annotated[list[Annotated[str, matching(_GRES)]], AsList] = Field(
        default_factory=list,
        description="further generic resources per node, such as [nvme:1]",
    )
    dependency: Annotated[list[Annotated[str, matching(_DEPENDENCY)]], AsList] = Field(
        default_factory=list,
        description="jobs of others that the first attempt of each run waits for: [afterok:123]",
    )
    modules: Annotated[list[Annotated[str, matching(_MODULE)]], AsList] = Field(
        default_factory=list, description="environment modules to load"
    )
    setup: Lines = Field(
        default_factory=list,
        description="shell lines that the job script runs after loading the modules",
    )
    container: list[Word] = Field(
        default_factory=list,
        description="command under which the agent runs, as a list: [apptainer, exec, IMAGE]",
    )
    srun: Annotated[list[Annotated[str, matching(_SRUN)]], AsList] = Field(
        default_factory=list,
        description=(
            "options of srun: those of Pyxis, such as [--container-image=/images/vtjobs.sqsh], "
            "and --mpi, --cpu-bind, --mem-bind, --gpu-bind"
        ),
    )
    python: Program | None = Field(
        None,
        description="Python interpreter on the nodes; default: the one that runs vtjobs here",
    )
    extra: dict[str, str | int | bool] = Field(
        default_factory=dict,
        description=f"additional sbatch options; allowed: {', '.join(sorted(EXTRA))}",
    )
    handover: bool = Field(
        True,
        description="whether jobs may submit their successors from the compute nodes",
    )

    @field_validator("container")
    @classmethod
    def _container(cls, value: list[str]) -> list[str]:
        if value and not PROGRAM.match(value[0]):
            raise ValueError(f"{value[0]!r} is not a command")
        return value

    @field_validator("gres")
    @classmethod
    def _gres(cls, value: list[str]) -> list[str]:
        if any(one.partition(":")[0] == "gpu" for one in value):
            raise ValueError("GPUs are set by resources.gpus_per_node and resources.gpu")
        return value

    @field_validator("extra")
    @classmethod
    def _extra(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, setting in value.items():
            if name in OURS:
                raise ValueError(f"{name!r} is set by vtjobs")
            if name in ("clusters", "M"):
                raise ValueError(
                    f"{name}: a workspace belongs to one cluster, that of SLURM_CONF."
                    " Use a workspace for each cluster"
                )
            if name not in EXTRA:
                raise ValueError(f"unknown option {name!r}. {suggest(name, EXTRA)}")
            if isinstance(setting, str) and not _VALUE.match(setting):
                raise ValueError(f"{name}: a character in {setting!r} is not allowed")
        return value


SETTINGS = Slurm

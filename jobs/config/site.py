"""What a site asks of a job.

SLURM's partition and modules, Ray's address… Every value passes an allow-list of ours.

submitit's own quoting lets a crafted value run a line of shell, sbatch reads backslashes inside
quotes, and Ray hands an entrypoint to a shell.
"""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from ..errors import BadInput, suggest
from ..strict_yaml import Document
from ..validation import validate
from .config import Config
from .resources import Duration

# Names of partitions, accounts, QOS, reservations, nodes (with ranges) and features (with & | * and
# counts).
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,-]{0,255}\Z")
_NODES = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,\[\]-]{0,1023}\Z")
_FEATURES = re.compile(r"[A-Za-z0-9(\[][A-Za-z0-9_.&|*(),\[\]-]{0,255}\Z")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]{0,127}\Z")
_WORD = re.compile(r"[A-Za-z0-9_./:=,@%+-]{1,512}\Z")
# The first word of a command; srun would take one with a dash for an option of its own.
_PROGRAM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:=,@%+-]{0,511}\Z")
_LINE = re.compile(r"[\x20-\x7e]{1,1000}\Z")
_AMOUNT = re.compile(r"[0-9]{1,9}[KMGT]?\Z")
_VALUE = re.compile(r"[A-Za-z0-9_.,:=@+-]{1,255}\Z")
# The address of a Ray dashboard: a host by name or number, an IPv6 one in brackets, and perhaps a
# port and a path.
_URL = re.compile(
    r"https?://(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9_./-]{0,255})?\Z"
)

# Options of sbatch that decide nothing that vtjobs decides.
EXTRA = frozenset(
    "licenses mail-type mail-user nice switches tmp hint gres-flags mem-per-gpu mem-per-cpu wckey "
    "begin priority threads-per-core network profile acctg-freq".split()
)
OURS = frozenset(
    "output error array job-name nodes ntasks ntasks-per-node gpus gpus-per-node gres time signal"
    " requeue no-requeue dependency wrap chdir export kill-on-invalid-dep open-mode parsable uid"
    " gid cpus-per-task exclusive".split()
)


def _text(pattern: re.Pattern[str]) -> Any:
    def check(value: str) -> str:
        if not pattern.match(value):
            bad = next(
                (
                    char
                    for char in value
                    if not any(pattern.match(before + char) for before in ("", "a", "1"))
                ),
                "",
            )
            raise ValueError(
                f"character {bad!r} not allowed" if bad else f"{value!r} is not allowed"
            )
        return value

    return AfterValidator(check)


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_url(value: str) -> str:
    if not _URL.match(value):
        raise ValueError(
            f"expected the address of Ray's dashboard, such as http://127.0.0.1:8265, got {value!r}"
        )
    return value.rstrip("/")


Name = Annotated[str, _text(_NAME)]
Lines = Annotated[list[Annotated[str, _text(_LINE)]], BeforeValidator(_as_list)]


class Slurm(BaseModel):
    """SLURM settings, in a grid's `backend` block or in the configuration."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    partition: Annotated[str, _text(_NAMES)] | None = None
    account: Name | None = None
    qos: Name | None = None
    reservation: Name | None = None
    constraint: Annotated[str, _text(_FEATURES)] | None = Field(
        None,
        description="required node features, such as v100|a100",
    )
    exclude: Annotated[str, _text(_NODES)] | None = Field(
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
    mem: Annotated[str, _text(_AMOUNT)] | None = Field(
        None,
        description=(
            "memory per node, such as 200G; default: the partition's default, "
            "or all memory if the node is allocated exclusively"
        ),
    )
    lead: Duration = Field(
        120,
        description="time before the walltime at which runs save and stop, at most 1/4 of it",
    )
    modules: Annotated[list[Annotated[str, _text(_MODULE)]], BeforeValidator(_as_list)] = Field(
        default_factory=list, description="environment modules to load"
    )
    setup: Lines = Field(
        default_factory=list,
        description="shell lines that the job script runs after loading the modules",
    )
    container: list[Annotated[str, _text(_WORD)]] = Field(
        default_factory=list,
        description="command under which the agent runs, as a list: [apptainer, exec, IMAGE]",
    )
    python: Annotated[str, _text(_PROGRAM)] | None = Field(
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
        if value and not _PROGRAM.match(value[0]):
            raise ValueError(f"{value[0]!r} is not a command")
        return value

    @field_validator("extra")
    @classmethod
    def _extra(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, setting in value.items():
            if name in OURS:
                raise ValueError(f"{name!r} is set by vtjobs")
            if name not in EXTRA:
                raise ValueError(f"unknown option {name!r}. {suggest(name, EXTRA)}")
            if isinstance(setting, str) and not _VALUE.match(setting):
                raise ValueError(f"{name}: a character in {setting!r} is not allowed")
        return value


class Ray(BaseModel):
    """Ray settings, in a grid's `backend` block or in the configuration."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    address: Annotated[str, AfterValidator(_as_url)] | None = Field(
        None,
        description="URL of the dashboard, such as http://127.0.0.1:8265; default: RAY_ADDRESS",
    )
    insecure: bool = Field(
        False,
        description="whether the token may be sent to another host over plain HTTP",
    )
    autoscale: bool = Field(
        False,
        description=(
            "whether the cluster adds nodes for waiting jobs; "
            "requests that none of its current nodes can meet are then accepted"
        ),
    )
    cpus_per_gpu: int | None = Field(
        None,
        ge=1,
        le=512,
        description="CPU cores per GPU; default: a node's cores divided by its GPUs",
    )
    resources: dict[Name, Annotated[float, Field(gt=0, le=1e6)]] = Field(
        default_factory=dict,
        description="custom Ray resources that a run needs on each of its nodes, as {name: amount}",
    )
    lead: Duration = Field(
        60,
        description="time before the walltime at which runs save and stop, at most 1/4 of it",
    )
    setup: Lines = Field(
        default_factory=list,
        description="shell lines that run before the agent",
    )
    python: Annotated[str, _text(_PROGRAM)] | None = Field(
        None,
        description="Python interpreter on the nodes; default: the one that runs vtjobs here",
    )


SITES: dict[str, type[BaseModel]] = {"slurm": Slurm, "ray": Ray}


def configured(config: Config, name: str) -> dict[str, Any]:
    """Return a backend's settings of the configuration, checked.

    Raises:
        BadInput: a value is not allowed.
    """
    given = config.settings[name]
    usual, problems = validate(
        SITES[name], given.value, Document(file=given.origin, data=given.value), (name,)
    )
    if usual is None:
        raise BadInput(problems)
    return usual.model_dump(mode="json")

"""What a run asks of the machine; none of it decides the weights."""

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from ..names import name_problem
from ..units import parse_duration_s
from ..workspace.allocation import MOST_PER_GPU

Duration = Annotated[
    int,
    BeforeValidator(parse_duration_s),
    WithJsonSchema({"type": "string", "examples": ["12h", "30m", "24:00:00"]}),
]


class Resources(BaseModel):
    """Resources of each run; they do not change its id."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    nodes: int = Field(1, ge=1, le=1024, description="nodes of one run")
    gpus_per_node: int | None = Field(
        None,
        ge=0,
        le=64,
        description=(
            "GPUs of one run on each node, one per rank; 0: CPU; "
            "default: 1 if this machine has any, "
            "or as many of a node's GPUs as the virtual ranks can be divided among on a cluster"
        ),
    )
    gpu: str | None = Field(None, description="GPU type, such as v100")
    per_gpu: int = Field(
        1,
        ge=1,
        le=MOST_PER_GPU,
        description=(
            "runs that share one GPU, for small models that leave most of it idle; "
            "each trains on one GPU of one node, and may take its part of the memory"
        ),
    )
    cpu_ranks: int = Field(
        1,
        ge=1,
        le=64,
        description="DDP ranks per node of a CPU run (gpus_per_node: 0)",
    )
    threads: int = Field(1, ge=1, le=256, description="CPU threads per rank")
    pack: int | Literal["auto", "none"] = Field(
        "auto",
        description="runs per node: auto (as many as fit if nodes are allocated whole), none or n",
    )
    walltime: Duration | None = Field(
        None,
        description="walltime of one allocation; longer runs continue in the next allocation",
    )

    @field_validator("pack")
    @classmethod
    def _pack(cls, value: int | str) -> int | str:
        if isinstance(value, int) and not 1 <= value <= 64:
            raise ValueError(
                f"expected auto, none, or a number of runs per node from 1 to 64, got {value}"
            )
        return value

    @field_validator("per_gpu")
    @classmethod
    def _per_gpu(cls, value: int, others: ValidationInfo) -> int:
        for name in ("nodes", "gpus_per_node"):
            found = others.data.get(name) or 1
            if value > 1 and found > 1:
                raise ValueError(
                    f"runs that share a GPU train on one GPU of one node; {name} is {found}. "
                    f"Set resources.{name}: 1"
                )
        return value

    @field_validator("gpu")
    @classmethod
    def _gpu(cls, value: str | None) -> str | None:
        if value is not None and (problem := name_problem(value)):
            raise ValueError(problem)
        return value

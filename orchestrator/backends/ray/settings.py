"""What a grid file and vtjobs.yaml may say of Ray: the address, what a run needs there."""

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from ....jobs.config.config import Config, Setting
from ....jobs.config.resources import Duration
from ....jobs.config.site import Lines, Name, Program, SiteSettings

# A host by name or number, an IPv6 one in brackets, and perhaps a port and a path.
_URL = re.compile(
    r"https?://(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9_./-]{0,255})?\Z"
)


def _as_url(value: str) -> str:
    if not _URL.match(value):
        raise ValueError(
            f"expected the address of Ray's dashboard, such as http://127.0.0.1:8265, got {value!r}"
        )
    return value.rstrip("/")


class Ray(SiteSettings):
    """Ray settings, in a grid's `backend` block or in the configuration."""

    not_stored: ClassVar = frozenset(("address",))

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
    python: Program | None = Field(
        None,
        description="Python interpreter on the nodes; default: the one that runs vtjobs here",
    )

    @classmethod
    def configured(cls, config: Config, name: str) -> Setting:
        """Return what the configuration says, with Ray's own variable on top.

        RAY_ADDRESS may name what is no dashboard; then it holds only where nothing else is named.
        """
        given = super().configured(config, name)
        address = config.environ.get("RAY_ADDRESS")
        is_url = bool(address) and str(address).startswith(("http://", "https://"))
        if address and (is_url or "address" not in given.value):
            return Setting(value={**given.value, "address": address}, origin="RAY_ADDRESS")
        return given


SETTINGS = Ray

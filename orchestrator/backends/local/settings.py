"""What a grid file may say of this machine's queue."""

from pydantic import Field

from ....jobs.config.config import DEFAULT, Config, Setting
from ....jobs.config.site import SiteSettings


class Local(SiteSettings):
    """Settings of this machine's queue, in a grid's `backend` block."""

    slots: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="maximum number of concurrent runs; default: as many as GPUs or cores allow",
    )

    @classmethod
    def configured(cls, config: Config, name: str) -> Setting:
        """Return `local.slots` and the like: of this machine, so they have variables too."""
        found = {key: config.settings[f"{name}.{key}"] for key in cls.model_fields}
        origin = next((one.origin for one in found.values() if one.origin != DEFAULT), DEFAULT)
        return Setting(value={key: one.value for key, one in found.items()}, origin=origin)


SETTINGS = Local

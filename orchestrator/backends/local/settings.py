"""What a grid file may say of this machine's queue."""

from pydantic import Field

from ....jobs.config.config import Config, Setting
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
        """Return `local.slots`: it is a setting of this machine, so it has a variable too."""
        found = config.settings["local.slots"]
        return Setting(value={"slots": found.value}, origin=found.origin)


SETTINGS = Local

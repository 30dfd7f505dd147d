"""What a grid file may say of it."""

from pydantic import Field

from vtjobs.jobs.config.site import SiteSettings


class Nohup(SiteSettings):
    limit: int = Field(2, ge=1, le=64, description="agents at a time")


SETTINGS = Nohup

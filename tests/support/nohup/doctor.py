"""Its check of `vtjobs doctor`."""

import os

from vtjobs.jobs.config.config import Config
from vtjobs.jobs.config.site import configured
from vtjobs.orchestrator.backends.base import Finding


def examine(config: Config, *, in_use: bool, probe: bool) -> list[Finding]:
    if not in_use:
        return []
    limit, cores = configured(config, "nohup")["limit"], os.cpu_count() or 1
    return [Finding("nohup", True, f"up to {limit} agents at a time on {cores} cores")]

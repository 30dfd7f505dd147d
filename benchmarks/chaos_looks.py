"""Whether somebody who looks sees something, whatever is wrong with SLURM: `vtjobs status` again
and again.
"""

import subprocess
import threading
import time
from collections.abc import Callable

from chaos_faults import Site

EVERY_S = 3.0
# What a look takes at most on a busy machine: SLURM's own clients wait for 10 s.
ALLOWED_S = 60.0
UNREACHABLE = 5


class LookWatch(threading.Thread):
    """Counts looks that failed although the controller was there, if slow or standing still."""

    def __init__(
        self, site: Site, look: Callable[[], subprocess.CompletedProcess[str] | None]
    ) -> None:
        super().__init__(daemon=True)
        self.site, self.look = site, look
        self.over = threading.Event()
        self.found: list[str] = []
        self.longest_s = 0.0

    def run(self) -> None:
        while not self.over.wait(EVERY_S):
            began = time.monotonic()
            if (done := self.look()) is None:
                continue
            took_s = time.monotonic() - began
            self.longest_s = max(self.longest_s, took_s)
            excused = done.returncode == UNREACHABLE and began < self.site.gone_until
            if (done.returncode and not excused) or took_s > ALLOWED_S:
                said = " ".join(done.stderr.split())[-200:]
                self.found.append(f"exit code {done.returncode} after {took_s:.1f} s: {said}")

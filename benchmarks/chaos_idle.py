"""Whether places stood idle while work waited: the queue of SLURM and the ledger, looked at every
two seconds.
"""

import contextlib
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

from chaos_audit import SETTLED
from chaos_faults import Site

EVERY_S = 2.0
ALLOWED_S = 60.0
# A cluster that does not answer within this time is away, and nobody can use its places.
PATIENCE_S = 10.0
_LIVE = ("submitting", "queued", "starting", "running")


class IdleWatch(threading.Thread):
    """Counts how long the queue held fewer runs than it might, with others waiting.

    Time in which the cluster does not answer is not counted, and does not end a stretch.
    """

    def __init__(self, site: Site, root: Path, places: int) -> None:
        super().__init__(daemon=True)
        self.site, self.root, self.places = site, root, places
        self.over = threading.Event()
        self.found: list[str] = []
        self.longest_s = 0.0
        self._idle_s = 0.0
        self._last = time.monotonic()

    def run(self) -> None:
        began = time.monotonic()
        while not self.over.wait(EVERY_S):
            jobs = self._jobs()
            spent, self._last = time.monotonic() - self._last, time.monotonic()
            if jobs is None:
                continue
            missing, before = self._missing(jobs), self._idle_s
            self._idle_s = before + spent if missing else 0.0
            self.longest_s = max(self.longest_s, self._idle_s)
            if before <= ALLOWED_S < self._idle_s:
                at_s = time.monotonic() - began
                self.found.append(f"{missing} idle at {at_s:.0f} s, in the queue are {jobs}")

    def _jobs(self) -> list[tuple[str, int]] | None:
        """Return the name and index of each element in the queue; None if the cluster is away."""
        command = ["squeue", "-h", "-r", "-o", "%j %K"]
        try:
            done = subprocess.run(
                command, env=self.site.env, capture_output=True, text=True, timeout=PATIENCE_S
            )
        except subprocess.TimeoutExpired:
            return None
        if done.returncode:
            return None
        found = [line.split() for line in done.stdout.splitlines()]
        return [(name, int(index) if index.isdigit() else 0) for name, index in found]

    def _missing(self, jobs: list[tuple[str, int]]) -> int:
        """Return how many of the runs that wait could be in the queue, and are not."""
        if self.site.limit is not None and len(jobs) >= self.site.limit:
            return 0
        runs, queue = self._runs(), set(jobs)
        placed = sum(state in _LIVE and (token, index) in queue for token, index, state in runs)
        return max(0, min(len(runs) - placed, self.places - placed))

    def _runs(self) -> list[tuple[str | None, int | None, str | None]]:
        """Return of each run that is due the place and the state of its newest attempt."""
        ledger = self.root / "ledger.sqlite"
        settled = ", ".join(f"'{state}'" for state in sorted(SETTLED))
        query = (
            "SELECT a.token, a.array_index, a.state FROM runs r LEFT JOIN attempts a"
            " ON a.run_id = r.run_id AND a.number ="
            " (SELECT max(number) FROM attempts WHERE run_id = r.run_id)"
            f" WHERE r.state NOT IN ({settled}) AND r.not_before < ?"
        )
        # A ledger that is being made, or is busy, is looked at the next time.
        with contextlib.suppress(sqlite3.OperationalError):
            with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as opened:
                return opened.execute(query, (time.time(),)).fetchall()
        return []

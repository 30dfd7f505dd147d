"""Which runs have been handed to a scheduler, as the allocation files tell."""

import os

from ..errors import DamagedFile
from .allocation import Task, read_allocation
from .paths import Workspace


class Submissions:
    """The newest attempt of each run that an allocation names.

    `refresh` reads the files that came since the last time.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._read: set[str] = set()
        self._newest: dict[str, tuple[Task, str]] = {}
        # Of the files that were there at the last refresh.
        self._there: set[str] = set()

    def refresh(self) -> None:
        """Read the allocation files that are new.

        Raises:
            OSError: their folder cannot be read.
        """
        parts = (name.partition(".") for name in os.listdir(self._workspace.allocations))
        self._there = {
            token for token, _, suffix in parts if suffix == "json" and token.startswith("vtj-")
        }
        for token in self._there - self._read:
            self._take_in(token)

    def _take_in(self, token: str) -> None:
        try:
            allocation = read_allocation(self._workspace.allocation(token))
            tasks = [] if allocation is None else allocation.all_tasks
        except DamagedFile:
            # Damaged, or of a newer vtjobs: whoever submits says so.
            tasks = []
        self._read.add(token)
        for task in tasks:
            known = self._newest.get(task.run_id)
            if known is None or known[0].attempt < task.attempt:
                self._newest[task.run_id] = task, token

    def newest(self, run_id: str) -> Task | None:
        """Return the newest attempt at a run that was handed on; None: there is none.

        What a scheduler would not take yet is taken back: its file goes, as the last refresh saw.
        """
        task, token = self._newest.get(run_id, (None, ""))
        if task is None or token in self._there:
            return task
        del self._newest[run_id]
        return None

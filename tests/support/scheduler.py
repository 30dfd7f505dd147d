"""A scheduler's commands on PATH that answer what a test says, where a real one cannot be forced
to.
"""

import os
from pathlib import Path


class Commands:
    """A folder of small executables, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()

    def answers(self, name: str, script: str) -> Path:
        """Make a command that runs this shell script, after it noted its arguments and environment."""
        path = self.folder / name
        log = self.folder / f"{name}.log"
        path.write_text(f'#!/bin/sh\necho "$@" >> {log}\nenv > {log}.env\n{script}\n')
        path.chmod(0o755)
        return path

    def prints(self, name: str, text: str) -> None:
        """Make a command that prints this text."""
        self.answers(name, f"cat <<'END'\n{text.strip()}\nEND" if text.strip() else "")

    def fails(self, name: str, text: str, code: int = 1) -> None:
        """Make a command that says this on stderr and fails."""
        self.answers(name, f"cat >&2 <<'END'\n{text}\nEND\nexit {code}")

    def calls(self, name: str) -> list[str]:
        log = self.folder / f"{name}.log"
        return log.read_text().splitlines() if log.exists() else []

    def environment_of(self, name: str) -> dict[str, str]:
        """Return the environment that the last call had."""
        lines = (self.folder / f"{name}.log.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @property
    def path(self) -> str:
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"


def job_line(state: str, *, reason: str = "None", preempted_at: str = "None") -> str:
    """Return the line that `scontrol -o show job` prints about a job that has been told to end."""
    return (
        "JobId=41 ArrayJobId=40 ArrayTaskId=3 JobName=vtj-1 UserId=root(0) Priority=4294901757"
        f" JobState={state} Reason={reason} Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1"
        " ExitCode=0:0 TimeLimit=00:01:00 PreemptEligibleTime=2026-01-01T00:00:00"
        f" PreemptTime={preempted_at} NodeList=gpu0"
    )

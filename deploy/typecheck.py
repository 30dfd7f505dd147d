"""Check types with mypy, under a folder name that can be a package's: `python deploy/typecheck.py`.

mypy names modules after the checkout's folder; a clone called `vt-jobs` or `main` would give other
names each time.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOMS = ("analysis", "commands", "db", "jobs", "orchestrator", "web", "workers")
# The simulated cluster stands in for the real one: it gives what the functions of the backend give.
SIMULATION = "tests.simulation"


def main() -> int:
    checkout = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "vtjobs"
        link.symlink_to(checkout)
        rooms = [option for room in (*ROOMS, SIMULATION) for option in ("-p", f"vtjobs.{room}")]
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(checkout / "pyproject.toml"),
            *rooms,
            "-m",
            "vtjobs.cli",
        ]
        environment = {**os.environ, "MYPYPATH": folder}
        return subprocess.run(command, cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())

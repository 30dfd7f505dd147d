"""Run the command line as a user does: in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Cli:
    """A user in a folder, with a workspace below it."""

    folder: Path
    cache: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.folder / "runs"

    def environment(self, **more: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("VTJOBS_", "XDG_"))}
        return {**clean, "XDG_CACHE_HOME": str(self.cache), "VTJOBS_FENCE_S": "0.5", **self.env, **more}

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        """Start a command and return its process."""
        command = [sys.executable, "-m", "vtjobs.cli", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        environment = self.environment(**env)
        # Whoever runs the tests in the background has interrupts ignored, which a process would inherit.
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, text=True, preexec_fn=_heed_interrupts, **pipes
        )

    def __call__(self, *words: str, timeout: float = 300, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*words, **env)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def ok(self, *words: str, **env: str) -> str:
        """Run a command that must succeed; return its stdout."""
        done = self(*words, **env)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words: str, **env: str) -> Any:
        """Run a reading command that must succeed; return its document."""
        return json.loads(self.ok(*words, "--json", **env))

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

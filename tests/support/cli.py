"""Run the command line as a user does: in a process of its own.

Most commands take a second, nearly all of it for imports. A command that a test waits for is
therefore forked from a server process that has the imports behind it (`multiprocessing`'s
forkserver); `Cli.start` and `Cli.process` start a new interpreter, for tests of signals, streams,
encodings and imports.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from vtjobs.cli import COMMANDS

from .grids import write_grid

# What commands import when they run; torch, timm and ray are never among it.
PRELOADED = (
    "vtjobs.cli",
    *sorted(f"vtjobs.commands.{module}" for module in COMMANDS.values()),
    "vtjobs.orchestrator.requests.submit",
    "vtjobs.orchestrator.loop.tick",
    "vtjobs.orchestrator.views.status",
    "vtjobs.orchestrator.backends.local.backend",
    "vtjobs.analysis.findings.gather",
    "vtjobs.analysis.output.page",
    "vtjobs.commands.printing.terminal",
    "alembic.command",
    "numpy",
    "rich.table",
    "scipy.stats",
    "sqlalchemy.dialects.sqlite",
)


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _become(words: list[str], folder: str, environment: dict[str, str], streams: str) -> None:
    """Run a command in this forked process, as a new interpreter would."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(f"{streams}/{name}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = [str(Path(sys.modules["vtjobs.cli"].__file__ or "")), *words]
    sys.modules["vtjobs.cli"].main()


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
        ours = ("VTJOBS_", "XDG_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        own = {
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_STATE_HOME": str(self.cache / "state"),
            "VTJOBS_FENCE_S": "0.5",
        }
        return {**clean, **own, **self.env, **more}

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        """Start a command in a new interpreter and return its process."""
        # Whoever runs the tests in the background has interrupts ignored, which a process would
        # inherit.
        return subprocess.Popen(
            [sys.executable, "-m", "vtjobs.cli", *words],
            cwd=self.folder,
            env=self.environment(**env),
            text=True,
            preexec_fn=_heed_interrupts,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )

    def process(
        self, *words: str, timeout: float = 300, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a new interpreter."""
        process = self.start(*words, **env)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def __call__(
        self, *words: str, timeout: float = 300, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a process with warm imports."""
        with tempfile.TemporaryDirectory(prefix="vtjobs-cli-") as streams:
            arguments = (list(words), str(self.folder), self.environment(**env), streams)
            process = _server().Process(target=_become, args=arguments)
            process.start()
            process.join(timeout)
            if process.exitcode is None:
                process.kill()
                process.join()
                raise subprocess.TimeoutExpired(list(words), timeout)
            out, err = ((Path(streams) / name).read_text("utf-8") for name in ("out", "err"))
            return subprocess.CompletedProcess(words, process.exitcode, out, err)

    def ok(self, *words: str, **env: str) -> str:
        """Run a command that must succeed; return its stdout."""
        done = self(*words, **env)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words: str, **env: str) -> Any:
        """Run a reading command that must succeed; return its document."""
        return json.loads(self.ok(*words, "--json", **env))

    def write(self, name: str, text: str) -> str:
        write_grid(self.folder / name, text)
        return name

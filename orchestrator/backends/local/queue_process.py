"""The local queue's own process: starts agents as cores and GPUs come free, and notes how they end.

Beside it a keeper makes passes over the workspace (orchestrator/loop/keep.py): retries, later
stages and what else becomes due start with nobody there.

python -m vtjobs.orchestrator.backends.local.queue_process run --workspace DIR [--folder DIR]
python -m vtjobs.orchestrator.backends.local.queue_process submit --workspace DIR --token TOKEN
"""

import argparse
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ....jobs.atomic_files import open_file
from ....jobs.config.environment import job_environment, named_variables
from ....jobs.config.host import cpu_count, visible_gpus
from ....jobs.config.interpreter import module_command
from ....jobs.errors import DamagedFile, VtjobsError
from ....jobs.values import asdict
from ....jobs.workspace.allocation import read_allocation
from ....jobs.workspace.journal import HEARTBEAT_S
from ....jobs.workspace.paths import Workspace, WorkspaceUnreadable
from ....jobs.workspace.presence import Presence
from .backend import LocalQueue
from .entries import End, Need, ProcessIdentity, Running, process_identity, write
from .secrets import hand_secrets, take_secrets

logger = logging.getLogger("vtjobs.local")

TICK_S = 0.3
# How long a runner with nothing to do waits for more.
LINGER_S = 2.0
# How far two starts of a keeper lie apart at least, and at most after failures.
KEEPER_EVERY_S = (5.0, 300.0)


class Runner:
    """The loop of the one process that starts agents.

    Args:
        workspace: whose queue it serves.
        folder: where the keeper finds its settings; None: there is no keeper.
        variables: for the keeper alone; see `secrets`.
    """

    def __init__(
        self,
        workspace: Workspace,
        folder: Path | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        self.workspace = workspace
        self.folder = folder
        self.variables = variables or {}
        self.queue = LocalQueue(workspace)
        self.presence = Presence(workspace)
        self.codes: dict[int, int] = {}
        # As the last look at the queue found it.
        self._running: dict[str, Running] = {}
        self._is_awaited = False
        self._shown_at = -HEARTBEAT_S
        self._keeper: int | None = None
        self._keeper_wait = KEEPER_EVERY_S[0]
        self._keeper_at = -self._keeper_wait

    def run(self) -> None:
        """Serve until the workspace is gone, or nothing is to be done here or will be due."""
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < LINGER_S and not self.presence.is_gone():
            if self._has_work():
                idle_since = time.monotonic()
            time.sleep(TICK_S)

    def _has_work(self) -> bool:
        if not self.presence.is_there():
            # A queue that cannot be seen is not an empty one: what it held is still to be done.
            self._reap()
            agents = any(entry.is_alive for entry in self._running.values())
            return agents or self._is_awaited or self._is_kept()
        has_work = self.tick()
        if has_work and self.folder is not None and not self._is_kept():
            self._start_keeper(self.folder)
        return has_work or self._is_kept()

    def _is_kept(self) -> bool:
        if self._keeper in self.codes:
            code = self.codes.pop(self._keeper)
            logger.info("keeper ended with %d", code)
            self._keeper = None
            # One that cannot open the ledger from here will not be able to in five seconds.
            longer = min(KEEPER_EVERY_S[1], self._keeper_wait * 2)
            self._keeper_wait = longer if code else KEEPER_EVERY_S[0]
        return self._keeper is not None

    def _start_keeper(self, folder: Path) -> None:
        if time.monotonic() - self._keeper_at < self._keeper_wait:
            return
        self._keeper_at = time.monotonic()
        module = "vtjobs.orchestrator.loop.keep"
        root = str(self.workspace.root)
        command = module_command(module, "--workspace", root, "--folder", str(folder))
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        hand_secrets(process, self.variables)
        # Reaped with the agents.
        self._keeper = process.pid

    def tick(self) -> bool:
        """Note ends, start what fits; return whether there is anything to do."""
        self._reap()
        if time.monotonic() - self._shown_at >= HEARTBEAT_S:
            self._shown_at = time.monotonic()
            self.queue.show_life()
        running = self.queue.running()
        for token, entry in list(running.items()):
            if not entry.is_alive:
                self._note_end(token, entry)
                del running[token]
        waiting = self.queue.waiting()
        for token, need in waiting:
            if token in running:
                self.queue.entry("queue", token).unlink(missing_ok=True)
                continue
            if self.queue.entry("ended", token).exists():
                self.queue.entry("queue", token).unlink(missing_ok=True)
                continue
            if need.gpus > len(visible_gpus()):
                # It would block the queue for ever; the next command sees its end and says why.
                self._refuse(
                    token, f"needs {need.gpus} GPUs, this machine shows {len(visible_gpus())}"
                )
                continue
            gpus = self._fits(need, running)
            if gpus is None or self.presence.is_gone(at_once=True):
                break
            running[token] = self._start(token, need, gpus)
        self._running = running
        self._is_awaited = any(token not in running for token, _ in waiting)
        return bool(running or waiting)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.codes[pid] = os.waitstatus_to_exitcode(status)

    def _note_end(self, token: str, entry: Running) -> None:
        # It may have ended since the last reaping.
        self._reap()
        code = self.codes.pop(entry.pid, None)
        word = (
            "gone" if code is None else f"exit {code}" if code >= 0 else signal.Signals(-code).name
        )
        write(self.queue.folder("ended") / f"{token}.json", End(code=code, word=word))
        self.queue.entry("running", token).unlink(missing_ok=True)
        logger.info("%s: %s", token, word)

    def _refuse(self, token: str, word: str) -> None:
        write(self.queue.folder("ended") / f"{token}.json", End(code=None, word=word))
        self.queue.entry("queue", token).unlink(missing_ok=True)
        logger.info("%s: %s", token, word)

    def _fits(self, need: Need, running: dict[str, Running]) -> list[str] | None:
        """Return the GPUs for an allocation, or None where it must wait."""
        taken = {gpu for entry in running.values() for gpu in entry.gpus}
        free = [gpu for gpu in visible_gpus() if gpu not in taken]
        cores = cpu_count() - sum(entry.cores for entry in running.values())
        if need.gpus:
            return free[: need.gpus] if len(free) >= need.gpus else None
        return [] if cores >= need.cores else None

    def _start(self, token: str, need: Need, gpus: list[str]) -> Running:
        cores = 0 if gpus else need.cores
        pid = os.fork()
        if pid == 0:
            try:
                self._become_agent(token, gpus, cores)
            finally:
                os._exit(71)
        logger.info("%s: agent %d, GPUs %s", token, pid, ",".join(gpus) or "none")
        # The child names itself on disk before it becomes the agent; until then its number stands
        # for it.
        path = self.queue.entry("running", token)
        deadline = time.monotonic() + 5
        while (
            not path.exists() and time.monotonic() < deadline and process_identity(pid) is not None
        ):
            time.sleep(0.005)
        self.queue.entry("queue", token).unlink(missing_ok=True)
        identity = process_identity(pid) or ProcessIdentity(pid=pid, started="", boot="")
        return Running(**asdict(identity), gpus=gpus, cores=cores)

    def _named(self, token: str) -> frozenset[str]:
        """Return the variables that an allocation's site asks for."""
        with contextlib.suppress(DamagedFile):
            if allocation := read_allocation(self.workspace.allocation(token)):
                return named_variables(allocation.site)
        # Its agent says what is wrong with it.
        return named_variables({})

    def _become_agent(self, token: str, gpus: list[str], cores: int) -> None:
        os.setsid()
        identity = process_identity(os.getpid())
        assert identity is not None
        self.queue.folder("running")
        entry = Running(**asdict(identity), gpus=gpus, cores=cores)
        if not write(self.queue.entry("running", token), entry):
            return
        log = open_file(self.workspace.agent_log(token, 0, 0), os.O_WRONLY | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        environment = job_environment(self._named(token))
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        root = str(self.workspace.root)
        words = ("--workspace", root, "--token", token)
        command = module_command("vtjobs.workers.agent", *words)
        os.execve(sys.executable, command, environment)


def main() -> int:
    """Parse the command line; run the queue, or add to it."""
    parser = argparse.ArgumentParser(prog="vtjobs.orchestrator.backends.local.queue_process")
    parser.add_argument("action", choices=("run", "submit"))
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--token", help="the allocation to add")
    parser.add_argument("--folder", type=Path, help="where the settings are found")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    workspace = Workspace(options.workspace)
    try:
        workspace.check()
        presence = Presence(workspace)
    except VtjobsError as error:
        logger.error("%s", error)
        return error.exit_code
    queue = LocalQueue(workspace)
    if options.action == "submit":
        allocation = read_allocation(workspace.allocation(options.token))
        if allocation is None:
            logger.error("%s: no such allocation", options.token)
            return 1
        queue.add(allocation)
        queue.wake()
        return 0
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    variables = take_secrets() if options.folder is not None else {}
    free = True
    # Somebody may have queued more while the lock was still held, and so have started no runner.
    try:
        while free and not presence.is_gone() and (queue.waiting() or queue.running()):
            with queue.lock() as free:
                if free:
                    Runner(workspace, options.folder, variables).run()
    except WorkspaceUnreadable as error:
        # Its file system went away in the middle: whoever looks next starts another runner.
        logger.error("%s", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

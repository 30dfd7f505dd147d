"""Many who look at once: the scheduler is spared, and nothing is changed."""

import grp
import os
import shlex
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..support.slurm import SlurmCluster
from ..support.slurm_user import LATER, SlurmUser, slurm_grid
from ..support.strangers import contents, needs_root, start_as_stranger

COMMANDS = (
    "sbatch",
    "scancel",
    "squeue",
    "sacct",
    "sacctmgr",
    "scontrol",
    "sinfo",
    "sdiag",
    "srun",
)
OWNERS, STRANGERS = 20, 10
# Long enough for several readers to come within it, short enough for a second turn.
POLL_S = 5


@dataclass
class Recorded:
    """SLURM's commands behind wrappers that write down each call, and then make it."""

    folder: Path

    @property
    def path(self) -> str:
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def install(self, cluster: SlurmCluster) -> None:
        (self.folder / "bin").mkdir()
        log = self.folder / "calls"
        log.touch()
        # Another user's call would be written down as well.
        log.chmod(0o666)
        for name in COMMANDS:
            wrapper = self.folder / "bin" / name
            real = shlex.quote(cluster.ask("which", name))
            wrapper.write_text(f'#!/bin/bash\necho "$EUID {name} $*" >> {log}\nexec {real} "$@"\n')
            wrapper.chmod(0o755)

    def calls(self) -> list[tuple[int, str]]:
        """Return who called what, in order."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [(int(line.split()[0]), line.split()[1]) for line in lines]

    def forget(self) -> None:
        os.truncate(self.folder / "calls", 0)


@pytest.fixture
def open_user(open_folder: Path, cache: Path, slurm: SlurmCluster) -> Iterator[SlurmUser]:
    """Somebody whose folder others can reach, and whose first group shares the workspace."""
    made = SlurmUser(open_folder, cache, cluster=slurm)
    made.env["VTJOBS_POLL_S"] = str(POLL_S)
    made.write("vtjobs.yaml", f"group: {grp.getgrgid(os.getegid()).gr_name}\n")
    yield made


@needs_root
def test_thirty_readers_ask_the_scheduler_in_turns_and_change_nothing(
    open_user: SlurmUser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    user = open_user
    user.submit(slurm_grid(seeds="2", site=LATER))
    run_id = user.runs()[0]["run_id"]
    commands = [["status"], ["runs"], ["show", run_id]]
    queued = user.queue("%i %T")
    recorded = Recorded(user.folder / "recorded")
    recorded.folder.mkdir()
    recorded.install(user.cluster)

    def stranger(number: int) -> "object":
        return start_as_stranger(
            user.folder, *commands[number % 3], "-W", str(user.workspace),
            groups=[os.getegid()], PATH=recorded.path, SLURM_CONF=user.env["SLURM_CONF"],
            VTJOBS_POLL_S=str(POLL_S),
        )  # fmt: skip

    # The commands above have asked; one of the readers is to be the next.
    time.sleep(POLL_S)
    began = time.monotonic()
    others = [stranger(number) for number in range(STRANGERS)]
    with ThreadPoolExecutor(OWNERS) as pool:
        done = list(
            pool.map(lambda number: user(*commands[number % 3], PATH=recorded.path), range(OWNERS))
        )
    for process in others:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, out + err
    turns = 1 + (time.monotonic() - began) / POLL_S
    assert [one.returncode for one in done] == [0] * OWNERS, [one.stderr for one in done]
    calls = recorded.calls()
    assert {name for _, name in calls} <= {"squeue", "sacct", "sdiag"}, calls
    assert 1 <= sum(name == "squeue" for _, name in calls) <= turns, (turns, calls)
    assert {uid for uid, _ in calls} == {os.geteuid()}
    assert user.queue("%i %T") == queued
    assert {path.stat().st_uid for path in user.folder.rglob("*")} == {os.geteuid()}
    # Alone, so that whatever changes is their doing.
    recorded.forget()
    before = contents(user.workspace)
    for process in [stranger(number) for number in range(3)]:
        assert process.wait(240) == 0
    assert recorded.calls() == []
    assert contents(user.workspace) == before

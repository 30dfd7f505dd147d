"""What `vtjobs logs` prints, and how it follows a run."""

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vtjobs.commands.printing.follow import Output, Wanted, follow_logs, print_logs
from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.run.states import AttemptState, RunState
from vtjobs.jobs.workspace.paths import RunFolder
from vtjobs.orchestrator.views.standing import Standing

from ..conftest import end_processes
from ..support.cli import Cli
from ..support.grids import tiny_grid
from ..support.lab import Lab

pytestmark = pytest.mark.training

PATIENCE_S = 120
# Fails once, in its second epoch: six steps make an epoch.
STUMBLING = """\
from pathlib import Path

import torch


class Stumbling(torch.nn.Module):
    def __init__(self, grids, been: str = ""):
        super().__init__()
        self.been, self.calls = Path(been), 0

    def forward(self, grids, generator, places=None):
        self.calls += self.training
        if self.calls == 20 and not self.been.exists():
            self.been.touch()
            raise RuntimeError("stumbled")
        return grids[-1].sum() * 0.0, {}
"""


def first_line(process: subprocess.Popen[str]) -> str:
    """Return the first line on a process's stderr."""
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], PATIENCE_S)[0], "nothing was said"
    return process.stderr.readline()


def epochs_in(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("epoch ")]


@dataclass
class Followed:
    """A run that was held, failed once and then completed, and what its follower saw."""

    cli: Cli
    run_id: str
    attempts_while_held: int
    out: str
    err: list[str]
    code: int


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Followed]:
    cli = Cli(tmp_path_factory.mktemp("followed"), cache)
    cli.write("stumbling.py", STUMBLING)
    head = f'"stumbling.py:Stumbling": {{weight: 0.1, been: {cli.folder / "been"}}}'
    cli.write("grid.yaml", tiny_grid(seeds="1", epochs=4, heads=f"[{{{head}}}]"))
    cli.ok("submit", "grid.yaml", "--hold")
    (run_id,) = cli.ok("runs", "-q").split()
    follower = cli.start("logs", run_id[:8], "-f")
    said = first_line(follower)
    attempts = cli.json("show", run_id)["attempts"]
    cli.ok("release", run_id)
    # Somebody has to start the second attempt: the follower does not.
    cli.ok("submit", "grid.yaml", "--wait")
    out, err = follower.communicate(timeout=PATIENCE_S)
    yield Followed(
        cli, run_id, len(attempts), out, [said.rstrip(), *err.splitlines()], follower.returncode
    )
    end_processes(cli.workspace)


def test_a_follower_says_once_that_the_run_is_held_and_starts_nothing(followed: Followed) -> None:
    assert followed.err[0] == f"{followed.run_id[:8]} waits: it is on hold"
    assert sum("hold" in line for line in followed.err) == 1
    assert followed.attempts_while_held == 0


def test_a_follower_prints_every_attempt_of_a_run_that_fails_and_is_retried(
    followed: Followed,
) -> None:
    assert epochs_in(followed.out) == ["1/4", "2/4", "1/4", "2/4", "3/4", "4/4"]
    assert "RuntimeError: stumbled" in followed.out
    assert f"attempt 2 of {followed.run_id[:8]}" in followed.err


def test_a_follower_ends_without_an_error_once_the_run_is_completed(followed: Followed) -> None:
    assert followed.code == 0
    assert followed.err[-1] == f"{followed.run_id[:8]} is completed"
    assert followed.out.splitlines()[-1].startswith("end  completed  best test top1 ")


def test_following_a_run_that_has_ended_prints_its_newest_attempt(followed: Followed) -> None:
    done = followed.cli("logs", followed.run_id, "-f")
    assert (done.returncode, epochs_in(done.stdout)) == (0, ["1/4", "2/4", "3/4", "4/4"])


def test_without_following_the_newest_attempt_is_printed_and_named(followed: Followed) -> None:
    done = followed.cli("logs", followed.run_id)
    assert epochs_in(done.stdout) == ["1/4", "2/4", "3/4", "4/4"]
    assert done.stderr == f"attempt 2 of {followed.run_id[:8]} (2 attempts so far)\n"


@pytest.mark.parametrize("words", [(), ("-f",)])
def test_an_attempt_that_is_asked_for_is_the_only_one(
    followed: Followed, words: tuple[str, ...]
) -> None:
    done = followed.cli("logs", followed.run_id, "--attempt", "1", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert epochs_in(done.stdout) == ["1/4", "2/4"]


@pytest.mark.parametrize("words", [(), ("-f",)])
def test_an_attempt_that_never_was_is_an_error(followed: Followed, words: tuple[str, ...]) -> None:
    done = followed.cli("logs", followed.run_id, "--attempt", "7", *words)
    assert done.returncode == 3
    assert f"attempt 7 of {followed.run_id[:8]} has no log" in done.stderr


def test_a_follower_of_a_run_that_fails_for_good_ends_and_says_where_to_read_on(cli: Cli) -> None:
    cli.write("broken.py", STUMBLING.replace("not self.been.exists()", "True"))
    head = f'"broken.py:Stumbling": {{weight: 0.1, been: {cli.folder / "been"}}}'
    cli.write(
        "grid.yaml", tiny_grid(seeds="1", epochs=4, heads=f"[{{{head}}}]", extra="retries: 0")
    )
    cli.ok("submit", "grid.yaml")
    (run_id,) = cli.ok("runs", "-q").split()
    done = cli("logs", run_id, "-f", timeout=PATIENCE_S)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("end  failed: user_error  best test top1 ")
    assert done.stderr.splitlines()[-1] == f"{run_id[:8]} is failed. See: vtjobs why {run_id[:8]}"


def test_a_follower_starts_no_run_and_ends_quietly_with_an_interrupt(
    quiet_lab: Lab, cache: Path
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    follower = Cli(quiet_lab.folder, cache).start("logs", run_id, "-f")
    assert first_line(follower).startswith(f"{run_id[:8]} waits: it is ready")
    with pytest.raises(subprocess.TimeoutExpired):
        follower.wait(timeout=3)
    assert quiet_lab.attempts(run_id) == []
    follower.send_signal(signal.SIGINT)
    assert follower.communicate(timeout=PATIENCE_S) == ("", "interrupted\n")
    assert follower.returncode == 130


# From files alone ---------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "0d6e78d5aaaaaaaa")


def write(run: RunFolder, attempt: int, text: str, rank: int = 0) -> Path:
    run.logs(attempt).mkdir(parents=True, exist_ok=True)
    path = run.logs(attempt) / f"rank-{rank}.log"
    with path.open("a") as stream:
        stream.write(text)
    return path


def running(attempts: Mapping[int, AttemptState]) -> Standing:
    return Standing(state=RunState.RUNNING, is_held=False, attempts=attempts)


def test_an_attempt_that_has_written_nothing_yet_gives_way_to_the_one_before(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    write(run, 1, "of the first\n")
    write(run, 2, "")
    attempts = {1: AttemptState.FAILED, 2: AttemptState.STARTING}
    print_logs(Wanted(run=run, attempt=None, rank=None), running(attempts))
    shown = capsys.readouterr()
    assert shown.out == "of the first\n"
    assert shown.err == "attempt 1 of 0d6e78d5 (2 attempts so far)\n"


def test_a_run_without_any_log_is_an_error_that_names_the_command_that_says_why(
    run: RunFolder,
) -> None:
    with pytest.raises(NothingMatched, match=r"0d6e78d5 has no log\. See: vtjobs why 0d6e78d5"):
        print_logs(Wanted(run=run, attempt=None, rank=None), running({}))


def test_a_line_that_is_not_whole_yet_waits_for_its_end(run: RunFolder) -> None:
    output = Output(run, 1, None)
    write(run, 1, "epoch 1/2  lo")
    assert [*output.new(last=False)] == []
    write(run, 1, "ss 1.2\nthe end")
    assert [*output.new(last=False)] == ["epoch 1/2  loss 1.2"]
    assert [*output.new(last=True)] == ["the end"]


def test_lines_of_several_ranks_are_marked(run: RunFolder) -> None:
    write(run, 1, "one\n")
    write(run, 1, "other\n", rank=1)
    assert [*Output(run, 1, None).new(last=True)] == ["rank-0: one", "rank-1: other"]
    assert [*Output(run, 1, 1).new(last=True)] == ["other"]


def test_the_last_lines_of_a_log_that_is_cut_into_parts_are_its_last(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    logs = folder.logs(1)
    logs.mkdir(parents=True)
    for number, part in enumerate((".log.head", ".log.previous", ".log")):
        (logs / f"rank-0{part}").write_text("".join(f"{number}{line}\n" for line in "abc"))
    assert [*Output(folder, 1, None).new(last=True, tail=4)] == ["1c", "2a", "2b", "2c"]


def test_a_pattern_is_searched_in_all_attempts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path / "run")
    for number in (1, 2):
        folder.logs(number).mkdir(parents=True)
        (folder.logs(number) / "rank-0.log").write_text(f"epoch {number}\nnan in {number}\n")
    wanted = Wanted(run=folder, attempt=None, rank=None, grep=re.compile("nan"))
    print_logs(wanted, Standing(state=RunState.FAILED, is_held=False, attempts={}))
    assert capsys.readouterr().out == "attempt 1: nan in 1\nattempt 2: nan in 2\n"
    with pytest.raises(NothingMatched):
        other = Wanted(run=folder, attempt=9, rank=None, grep=re.compile("nan"))
        print_logs(other, Standing(state=RunState.FAILED, is_held=False, attempts={}))


def test_a_log_that_is_cut_into_parts_is_printed_once(run: RunFolder) -> None:
    output = Output(run, 1, None)
    path = write(run, 1, "first\n")
    found = [*output.new(last=False)]
    write(run, 1, "second\n")
    os.replace(path, f"{path}.head")
    write(run, 1, "third\n")
    assert [*found, *output.new(last=False)] == ["first", "second", "third"]


# Several runs -------------------------------------------------------------------------------------


class Scene:
    """Two runs that train, and what happens to them between two looks."""

    def __init__(self, folder: Path) -> None:
        self.runs = [RunFolder(folder / name) for name in ("aaaaaaaa11111111", "bbbbbbbb22222222")]
        one, other = self.runs
        write(one, 1, "one 1\none 2\n")
        write(other, 1, "other 1\n")
        self.looks = 0

    def look(self) -> dict[str, Standing]:
        one, other = self.runs
        self.looks += 1
        if self.looks == 2:
            write(one, 1, "one 3\n")
            write(other, 2, "other again\n")
        first = RunState.RUNNING if self.looks < 2 else RunState.COMPLETED
        second = RunState.RUNNING if self.looks < 3 else RunState.FAILED
        done, failed = AttemptState.COMPLETED, AttemptState.FAILED
        live = AttemptState.RUNNING
        attempts = (
            {1: live} if self.looks == 1 else {1: failed, 2: failed if self.looks > 2 else live}
        )
        return {
            one.path.name: Standing(
                state=first, is_held=False, attempts={1: live if self.looks < 2 else done}
            ),
            other.path.name: Standing(state=second, is_held=False, attempts=attempts),
        }

    def wanted(self, **more: Any) -> list[Wanted]:
        return [
            Wanted(run=run, attempt=None, rank=None, mark=f"{run.path.name[:8]} ", **more)
            for run in self.runs
        ]


def test_several_runs_are_followed_until_all_have_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path)
    follow_logs(scene.wanted(), scene.look)
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "aaaaaaaa one 1", "aaaaaaaa one 2", "bbbbbbbb other 1",
        "aaaaaaaa one 3", "bbbbbbbb other again",
    ]  # fmt: skip
    assert shown.err.splitlines() == [
        "aaaaaaaa is completed", "attempt 2 of bbbbbbbb",
        "bbbbbbbb is failed. See: vtjobs why bbbbbbbb",
    ]  # fmt: skip


def test_no_attempt_is_passed_over_that_began_and_ended_between_two_looks(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = 0

    def look() -> dict[str, Standing]:
        nonlocal looks
        looks += 1
        if looks == 1:
            standing = Standing(state=RunState.QUEUED, is_held=False, attempts={})
        else:
            write(run, 1, "of the first\n")
            write(run, 2, "of the second\n")
            attempts = {1: AttemptState.FAILED, 2: AttemptState.COMPLETED}
            standing = Standing(state=RunState.COMPLETED, is_held=False, attempts=attempts)
        return {run.path.name: standing}

    follow_logs([Wanted(run=run, attempt=None, rank=None)], look)
    assert capsys.readouterr().out == "of the first\nof the second\n"


def test_a_followed_log_begins_with_its_last_lines_and_has_all_that_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path)
    follow_logs(scene.wanted(tail=1)[:1], scene.look)
    assert capsys.readouterr().out == "aaaaaaaa one 2\naaaaaaaa one 3\n"


def test_a_followed_log_can_be_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path)
    follow_logs(scene.wanted(grep=re.compile("again|3")), scene.look)
    assert capsys.readouterr().out == "aaaaaaaa one 3\nbbbbbbbb other again\n"

"""`--watch`: a view that is printed again and again."""

import gc
import os
import signal
import subprocess

import pytest

from vtjobs.commands import repeated
from vtjobs.commands.printing import screen
from vtjobs.commands.repeated import repeat, with_seconds
from vtjobs.jobs.errors import LedgerUnreachable

from ..support import tmux
from ..support.cli import Cli
from ..support.grids import tiny_grid


@pytest.fixture
def held(cli: Cli) -> Cli:
    """A workspace with two runs that nothing starts."""
    cli.ok("submit", cli.write("grid.yaml", tiny_grid()), "--hold")
    return cli


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["-w"], ["-w", "5"]),
        (["-w", "2"], ["-w", "2"]),
        (["--watch", "tiny"], ["--watch", "5", "tiny"]),
        (["tiny", "--watch=3"], ["tiny", "--watch=3"]),
        # The beginning of a run's id.
        (["-w", "3141"], ["-w", "5", "3141"]),
    ],
)
def test_seconds_may_be_left_out(words: list[str], meant: list[str]) -> None:
    assert with_seconds(words) == meant


def test_elsewhere_than_on_a_terminal_it_prints_what_has_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = iter(["one", "one", "two", "two"])

    def show() -> None:
        text = next(texts, None)
        if text is None:
            raise KeyboardInterrupt
        print(text)

    monkeypatch.setattr(repeated.time, "sleep", lambda _: None)
    monkeypatch.setattr(screen.time, "strftime", lambda _: "12:00:00")
    repeat(show, every_s=1)
    assert capsys.readouterr().out == "one\n\n12:00:00\ntwo\n"


@pytest.mark.parametrize("fault", [LedgerUnreachable("it is away"), OSError(116, "Stale file")])
def test_what_is_away_for_a_while_is_told_and_what_was_seen_last_stays(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([None, fault, fault, None])

    def show() -> None:
        match next(looks, KeyboardInterrupt()):
            case BaseException() as error:
                raise error
            case _:
                print("the table")

    monkeypatch.setattr(repeated.time, "sleep", lambda _: None)
    monkeypatch.setattr(screen.time, "strftime", lambda _: "T")
    repeat(show, every_s=1)
    said = capsys.readouterr()
    assert said.out == "the table\n\nT\nthe table\n\nT\nthe table\n"
    assert said.err == f"error: {fault}\n"


def test_an_error_of_a_later_look_has_no_escapes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([None, LedgerUnreachable("\x1b[2J\x1b]0;HACKED\x07")])

    def show() -> None:
        if (error := next(looks, KeyboardInterrupt())) is not None:
            raise error

    monkeypatch.setattr(repeated.time, "sleep", lambda _: None)
    repeat(show, every_s=1)
    said = capsys.readouterr().err
    assert "HACKED" in said and "\x1b" not in said and "\x07" not in said


@pytest.mark.parametrize("backend", ["own", "other"])
def test_watching_for_long_opens_nothing_more(
    held: Cli, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    from vtjobs.commands import watch
    from vtjobs.jobs.workspace.paths import Workspace

    if backend == "other":
        # As of somebody else: read through a connection that must be closed by hand.
        monkeypatch.setattr(Workspace, "is_ours", lambda _: False)
    monkeypatch.chdir(held.folder)
    counts: list[int] = []
    # What earlier tests have left behind shall not end in between.
    gc.collect()

    def pause(_: float) -> None:
        counts.append(len(os.listdir("/proc/self/fd")))
        if len(counts) == 30:
            raise KeyboardInterrupt

    monkeypatch.setattr(repeated.time, "sleep", pause)
    watch.status(watch=1, selector=None, as_json=False, quiet=False, workspace="runs")
    assert counts[-1] <= counts[1]


def test_what_cannot_be_shown_the_first_time_is_an_error(held: Cli) -> None:
    done = held("status", "nonsense", "-w", "1")
    assert (done.returncode, done.stdout) == (3, "")
    assert held("runs", "-w", "0").returncode == 2


@pytest.mark.parametrize(
    "line", ["status -w --json", "runs -w -q", "runs -w -f csv", "report -w --html out"]
)
def test_data_and_files_are_not_watched(held: Cli, line: str) -> None:
    done = held(*line.split())
    assert done.returncode == 2 and "cannot be combined" in done.stderr


def test_ctrl_c_is_no_failure(held: Cli) -> None:
    watching: subprocess.Popen[str] = held.start("status", "-w", "1")
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("GRID")
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert (watching.returncode, said) == (0, "")


@pytest.mark.skipif(not tmux.is_there(), reason="needs tmux")
def test_on_a_terminal_it_fills_the_screen_follows_and_leaves_its_last_state(held: Cli) -> None:
    with tmux.a_terminal(held.folder, held.environment()) as terminal:
        terminal.enter("vtjobs runs -w 1")
        seen = terminal.until("held")
        assert "every 1 s, Ctrl-C ends" in seen.splitlines()[0]
        held.ok("cancel", "tiny", "--yes")
        terminal.until("cancelled")
        terminal.interrupt()
        left = terminal.result()
        assert "Ctrl-C ends" not in left and left.count("cancelled") == 2

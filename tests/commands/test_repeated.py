"""`--watch`: a view that is printed again and again."""

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
        (["-w", "01234567"], ["-w", "5", "01234567"]),
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


def test_a_ledger_that_is_away_for_a_while_is_told_below_what_was_shown_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([None, LedgerUnreachable("it is away"), LedgerUnreachable("still"), None])

    def show() -> None:
        match next(looks, KeyboardInterrupt()):
            case BaseException() as error:
                raise error
            case _:
                print("the table")

    monkeypatch.setattr(repeated.time, "sleep", lambda _: None)
    monkeypatch.setattr(screen.time, "strftime", lambda _: "T")
    repeat(show, every_s=1)
    table = "the table\n"
    assert capsys.readouterr().out == (
        f"{table}\nT\n{table}\nerror: it is away\n\nT\n{table}\nerror: still\n\nT\n{table}"
    )


def test_what_cannot_be_shown_the_first_time_is_an_error(held: Cli) -> None:
    done = held("status", "nonsense", "-w", "1")
    assert (done.returncode, done.stdout) == (3, "")
    assert held("status", "-w", "--json").returncode == 2
    assert held("runs", "-w", "0").returncode == 2


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
        left = terminal.until("$")
        assert "Ctrl-C ends" not in left and left.count("cancelled") == 2

"""`vtjobs top`, driven by its keys in a terminal of two sizes, over a real workspace."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from vtjobs.commands.top.app import Top
from vtjobs.commands.top.cells import Cells
from vtjobs.commands.top.reader import Reader
from vtjobs.commands.top.runs import Failures, Run, Runs
from vtjobs.commands.top.view import Confirm, Listing
from vtjobs.jobs.errors import LedgerUnreachable
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.orchestrator.views.runs import RunView
from vtjobs.orchestrator.views.runs import runs as runs_of

from ...support import tmux
from ...support.cli import Cli
from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab

HOSTILE = "[red]not markup[/red] \x1b[31mnot a colour\x1b[0m \x1b]0;title\x07"


@pytest.fixture
def lab(quiet_lab: Lab) -> Iterator[Lab]:
    """Two cells of two seeds: one is done, of the other a seed failed and one waits."""
    runs = quiet_lab.submit(tiny_grid(heads="[supervised, relvit]", extra="retries: 1"))
    quiet_lab.tick()
    for run_id, top1 in zip(runs[:2], (60.0, 62.0), strict=True):
        journal(quiet_lab, run_id, 1, started(), scored(top1), ended("completed"))
    error = ended("failed", "user_error", signature="Error: #", message="Error: 7")
    journal(quiet_lab, runs[2], 1, started(), error)
    logs = quiet_lab.run(runs[2]).logs(1)
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "rank-0.log").write_text(f"first\n{HOSTILE}\nlast\n", encoding="utf-8")
    quiet_lab.tick(start=False)
    yield quiet_lab


def select(lab: Lab, words: list[str]) -> list[RunView]:
    return runs_of(lab.open(), parse_selection(words))


def texts(pilot: Pilot[None]) -> list[list[str]]:
    table = pilot.app.screen.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


async def until(pilot: Pilot[None], is_so: Callable[[], bool]) -> None:
    for _ in range(200):
        await pilot.pause(0.05)
        if is_so():
            return
    raise AssertionError(f"on {pilot.app.screen}: {texts(pilot)}")


def drive(
    lab: Lab, steps: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 24)
) -> None:
    """Run the program without a terminal, and press its keys."""

    async def main() -> None:
        app = Top(Reader(lab.open(), []), 1.0)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: isinstance(app.screen, Cells) and len(texts(pilot)) == 2)
            await steps(pilot)

    asyncio.run(main())


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_cells_come_first_with_mean_seeds_and_states(lab: Lab, size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        relvit, supervised = texts(pilot)
        assert {"2/2", "61.00 ± 1.41", "2"} <= set(supervised) and "supervised" in supervised
        assert {"0/2", "1"} <= set(relvit)
        heads = [
            str(column.label) for column in pilot.app.screen.query_one(DataTable).columns.values()
        ]
        assert heads[-3:] == ["QUEUED", "COMPLETED", "FAILED"]

    drive(lab, steps, size)


def test_it_shows_no_test_of_what_runs(lab: Lab) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("down", "b")
        heads = [
            str(column.label) for column in pilot.app.screen.query_one(DataTable).columns.values()
        ]
        assert "Δ" in heads and not {"P", "VERDICT"} & set(heads)

    drive(lab, steps)


def test_a_selector_narrows_the_cells_and_a_wrong_one_changes_nothing(lab: Lab) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"hed=x", "enter")
        await until(pilot, lambda: bool(pilot.app._notifications))
        assert len(texts(pilot)) == 2
        pilot.app.screen.query_one(Input).value = "head=relvit"
        await pilot.press("enter")
        await until(pilot, lambda: len(texts(pilot)) == 1)
        await pilot.press("slash", "escape")
        assert not pilot.app.screen.query_one(Input).display
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, Cells), "there is nothing to go back to"

    drive(lab, steps)


def test_marked_cells_are_drawn_over_each_other_with_their_runs_below(lab: Lab) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("space", "space", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Runs) and len(texts(pilot)) == 4)
        chart = str(pilot.app.screen.query_one("#chart", Static).content)
        assert "A  " in chart and "61.00 ± 1.41" in chart and "(epoch)" in chart
        await pilot.press("s", "escape")
        assert isinstance(pilot.app.screen, Cells)

    drive(lab, steps, (120, 40))


def test_a_failure_leads_to_its_run_and_log_in_which_nothing_is_markup(lab: Lab) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("f")
        await until(pilot, lambda: isinstance(pilot.app.screen, Failures) and bool(texts(pilot)))
        assert texts(pilot)[0][:2] == ["1", "user_error"]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Run) and len(texts(pilot)) > 3)
        (line,) = [row[0] for row in texts(pilot) if "not markup" in row[0]]
        assert "[red]not markup[/red]" in line and "\x1b" not in line and "\x07" not in line
        await pilot.press("slash", *"last", "enter")
        await until(pilot, lambda: texts(pilot)[-1] == ["last"] and len(texts(pilot)) < 10)
        before = len(texts(pilot))
        await pilot.press("d")
        await until(pilot, lambda: len(texts(pilot)) > before + 5)

    drive(lab, steps)


def test_what_changes_something_is_asked_first(lab: Lab) -> None:
    def states() -> set[str]:
        return {run.state for run in Reader(lab.open(), []).runs(cells)}

    cells = [cell.cell_id for cell in Reader(lab.open(), []).snapshot().cells if not cell.n]

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("C")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("n")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cells))
        assert states() == {"failed", "queued"}
        await pilot.press("C", "y")
        await until(pilot, lambda: "cancelled" in states())

    drive(lab, steps)


def test_an_action_is_about_the_runs_that_the_filter_leaves(lab: Lab) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, Cells)
        screen.reader.words = ["state=failed"]
        screen.refresh_now()
        await until(pilot, lambda: len(texts(pilot)) == 1)
        words, name = screen.chosen()
        assert name == "the 1 run of 1 cell"
        runs = select(lab, words)
        assert [run.state for run in runs] == ["failed"]

    drive(lab, steps)


def test_a_ledger_that_is_away_is_said_and_the_last_numbers_stay(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        def away(*_: object, **__: object) -> None:
            raise LedgerUnreachable("the ledger is away")

        monkeypatch.setattr("vtjobs.commands.top.reader.cells.cells", away)
        await until(pilot, lambda: bool(pilot.app._notifications))
        assert "61.00 ± 1.41" in texts(pilot)[1]

    drive(lab, steps)


def test_a_run_that_starts_meanwhile_is_seen_and_the_cursor_stays(lab: Lab) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("down")
        reader = Reader(lab.open(), [])
        runs = reader.runs([cell.cell_id for cell in reader.snapshot().cells])
        (waiting,) = [run.run_id for run in runs if run.state == "queued"]
        journal(lab, waiting, 1, started(), scored(55.0), ended("completed"))
        lab.tick(start=False)
        await until(pilot, lambda: "1/2" in texts(pilot)[0])
        assert pilot.app.screen.query_one(DataTable).cursor_row == 1

    drive(lab, steps)


def test_what_has_not_changed_is_not_drawn_again(lab: Lab) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        table = pilot.app.screen.query_one(Listing)
        rows = list(table.rows)
        shown = {
            str(row.value): [Text(str(cell)) for cell in table.get_row(row)] for row in table.rows
        }
        first = next(iter(shown.values()))
        first[3] = Text("changed")
        table.fill(table.heading, shown)
        assert texts(pilot)[0][3] == "changed"
        assert all(one is other for one, other in zip(rows, table.rows, strict=True))

    drive(lab, steps)


@pytest.mark.skipif(not tmux.is_there(), reason="needs tmux")
def test_in_a_real_terminal_it_fills_the_screen_and_gives_it_back(cli: Cli) -> None:
    cli.write("tiny.yaml", tiny_grid())
    cli.ok("submit", "tiny.yaml", "--hold")
    with tmux.a_terminal(cli.folder, cli.environment()) as terminal:
        terminal.enter("vtjobs top")
        terminal.until("0/2")
        terminal.press("q")
        assert "0/2" not in terminal.result()


def test_without_a_terminal_it_says_what_to_use(cli: Cli) -> None:
    done = cli("top")
    assert done.returncode == 2 and "top needs a terminal" in done.stderr

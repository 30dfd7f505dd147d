"""The further screens of `vtjobs top`: curves and runs of cells, one run, failures."""

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static

from ...analysis.output import wording
from ...jobs.names import one_line
from ...jobs.units import plural
from ..printing.curve import MOST_DRAWN, chart
from .reader import Reader
from .view import BACK, Listing, View, plain

if TYPE_CHECKING:
    from ...orchestrator.views.runs import RunView


class Runs(View):
    """The curves of some cells, and their runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("s", "single", "Seeds"),
        Binding("R", "act('retry')", "Retry"),
        Binding("C", "act('cancel')", "Cancel"),
    ]

    def __init__(self, reader: Reader, every_s: float, cell_ids: Sequence[str]) -> None:
        super().__init__(reader, every_s)
        self.cell_ids = list(cell_ids)
        self.single = False

    def compose(self) -> ComposeResult:
        yield Static(id="chart")
        yield Listing(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Listing).focus()
        super().on_mount()

    def read(self) -> tuple[Any, Any]:
        return self.reader.curves(self.cell_ids), self.reader.runs(self.cell_ids)

    def show(self, found: tuple[Any, Any]) -> None:
        curves, runs = found
        known = [curve for curve in curves if curve.points][:MOST_DRAWN]
        text = Text("No epoch of these runs has been scored yet.")
        if known:
            height = max(5, min(20, self.size.height // 2 - 8))
            drawn = chart(
                known, single=self.single, height=height, width=self.size.width, coloured=True
            )
            text = Text.from_ansi(drawn, no_wrap=True)
            names = wording.columns(known)
            for letter, curve in zip(string.ascii_uppercase, known, strict=False):
                label = "  ".join(wording.labels(curve, names))
                last = curve.points[-1]
                score = wording.score(last.mean, last.std)
                text.append("\n")
                text.append_text(
                    plain(f"{letter}  {label}  {score}  {last.n}/{curve.planned} seeds")
                )
        self.query_one("#chart", Static).update(text)
        rows = {
            run.run_id: [
                plain(run.run_id[:8]),
                plain(run.head),
                plain(run.seed),
                plain(run.shown_state),
                plain("" if run.epoch is None else run.epoch),
                plain(_score(run)),
                plain(run.host or ""),
                plain(run.reason),
            ]
            for run in runs
        }
        heading = ["RUN", "HEAD", "SEED", "STATE", "EPOCH", "SCORE", "HOST", "REASON"]
        self.query_one(Listing).fill(heading, rows)

    def chosen(self) -> tuple[list[str], str]:
        current = self.query_one(Listing).current
        return ([current], f"run {current[:8]}") if current else ([], "")

    def on_data_table_row_selected(self) -> None:
        current = self.query_one(Listing).current
        if current:
            self.app.push_screen(Run(self.reader, self.every_s, current))

    def action_single(self) -> None:
        """Draw single seeds instead of mean and deviation, or no longer."""
        self.single = not self.single
        self.refresh_now()


def _score(run: "RunView") -> str:
    """Return a run's score as it is shown."""
    return "" if run.score is None else f"{run.score:.2f}"


class Run(View):
    """One run: what `vtjobs show` says, and the end of its log."""

    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("slash", "search", "Search"),
        Binding("d", "details", "Details"),
        Binding("R", "act('retry')", "Retry"),
        Binding("C", "act('cancel')", "Cancel"),
    ]

    def __init__(self, reader: Reader, every_s: float, run_id: str) -> None:
        super().__init__(reader, every_s)
        self.run_id = run_id
        self.wanted = ""
        self.with_details = False

    def compose(self) -> ComposeResult:
        yield Listing(cursor_type="none", show_header=False)
        yield Input(placeholder="text to look for in the log; empty: all lines", id="search")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        self.query_one(Listing).focus()
        super().on_mount()

    def read(self) -> tuple[list[str], str, list[str]]:
        return self.reader.run_text(self.run_id), *self.reader.log(self.run_id)

    def show(self, found: tuple[list[str], str, list[str]]) -> None:
        about, name, log = found
        if not self.with_details and "" in about:
            about = about[: about.index("")]
        if self.wanted:
            log = [line for line in log if self.wanted.lower() in line.lower()]
        texts = [
            *map(plain, about),
            plain(""),
            Text(one_line(name), style="bold"),
            *map(plain, log),
        ]
        table = self.query_one(Listing)
        was_at_end = table.scroll_y >= table.max_scroll_y
        table.fill([""], {str(number): [text] for number, text in enumerate(texts)})
        if was_at_end and table.row_count:
            table.scroll_end(animate=False)

    def chosen(self) -> tuple[list[str], str]:
        return [self.run_id], f"run {self.run_id[:8]}"

    def action_details(self) -> None:
        """Show settings, attempts, results and history too, or no longer."""
        self.with_details = not self.with_details
        self.refresh_now()

    def action_search(self) -> None:
        """Show only the lines of the log with a text."""
        box = self.query_one(Input)
        box.value, box.display = self.wanted, True
        box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.wanted = event.value
        self.query_one(Input).display = False
        self.query_one(Listing).focus()
        self.refresh_now()


class Failures(View):
    """The failed runs by their cause."""

    BINDINGS: ClassVar[list[BindingType]] = [BACK, Binding("R", "act('retry')", "Retry")]

    def compose(self) -> ComposeResult:
        yield Listing(cursor_type="row", zebra_stripes=True)
        yield Static(id="remedy")
        yield Footer()

    def on_mount(self) -> None:
        self.groups: dict[str, Any] = {}
        self.query_one(Listing).focus()
        super().on_mount()

    def read(self) -> Any:
        return self.reader.failures()

    def show(self, found: Any) -> None:
        self.groups = {str(number): group for number, group in enumerate(found)}
        rows = {
            key: [plain(group.runs), plain(group.failure), plain(group.message)]
            for key, group in self.groups.items()
        }
        self.query_one(Listing).fill(["RUNS", "CLASS", "ERROR"], rows)
        if not rows:
            self.query_one("#remedy", Static).update("No run has failed.")

    def on_data_table_row_highlighted(self) -> None:
        group = self._current()
        if group is not None:
            self.query_one("#remedy", Static).update(plain(f"{group.remedy}  {group.next}".strip()))

    def on_data_table_row_selected(self) -> None:
        group = self._current()
        if group is not None:
            self.app.push_screen(Run(self.reader, self.every_s, group.sample))

    def _current(self) -> Any:
        return self.groups.get(self.query_one(Listing).current or "")

    def chosen(self) -> tuple[list[str], str]:
        group = self._current()
        return (group.run_ids, plural(group.runs, "failed run")) if group else ([], "")

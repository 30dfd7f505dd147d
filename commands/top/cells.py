"""The first screen of `vtjobs top`: the cells."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static

from ...analysis.output import wording
from ...jobs.errors import VtjobsError
from ...jobs.names import one_line
from ...jobs.run.states import RunState
from ...jobs.units import plural
from ...orchestrator.views.cells import CellView
from ..printing.curve import sparkline
from .reader import Reader, Snapshot
from .runs import Failures, Runs
from .view import Listing, View, plain

# In this order states have a column, where a run is in them.
STATES = (
    *(RunState.RUNNING, RunState.QUEUED, RunState.PENDING, RunState.BLOCKED),
    *(RunState.COMPLETED, RunState.DIVERGED, RunState.FAILED, RunState.CANCELLED),
)
LOST = (RunState.DIVERGED, RunState.FAILED)
# So many cells are listed. A selector finds the others.
MOST_CELLS = 2000
# For so many cells, the first of the list, the curve is read.
MOST_CURVES = 200


class Cells(View):
    """The cells: mean ± std, how many of the planned seeds, what runs and what failed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Runs"),
        Binding("escape", "close_filter", show=False),
        Binding("space", "mark", "Mark"),
        Binding("b", "pin", "Baseline"),
        Binding("slash", "filter", "Filter"),
        Binding("f", "failures", "Failures"),
        Binding("R", "act('retry')", "Retry"),
        Binding("C", "act('cancel')", "Cancel"),
        Binding("H", "act('hold')", "Hold"),
        Binding("L", "act('release')", "Release"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, reader: Reader, every_s: float) -> None:
        super().__init__(reader, every_s)
        self.marked: dict[str, None] = {}
        self.pinned: str | None = None
        self.cells: dict[str, CellView] = {}
        self.curves: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Listing(cursor_type="row", zebra_stripes=True)
        yield Input(
            placeholder="selector, e.g. head=drloc dataset=cifar10; empty: all", id="filter"
        )
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        self.query_one(Listing).focus()
        super().on_mount()

    def read(self) -> tuple[Snapshot, dict[str, str]]:
        found = self.reader.snapshot()
        first = [cell.cell_id for cell in found.cells[:MOST_CURVES]]
        drawn = self.reader.curves(first) if first else []
        return found, {
            one.cell_id: sparkline([point.mean for point in one.points]) for one in drawn
        }

    def show(self, found: tuple[Snapshot, dict[str, str]]) -> None:
        snapshot, self.curves = found
        self.cells = {cell.cell_id: cell for cell in snapshot.cells[:MOST_CELLS]}
        self.query_one("#head", Static).update(self._head(snapshot))
        self._fill()

    def _head(self, snapshot: Snapshot) -> Text:
        runs = sum(cell.planned for cell in snapshot.cells)
        at = datetime.fromtimestamp(snapshot.at).strftime("%H:%M:%S")
        what = " ".join(self.reader.words) or "all"
        text = plain(
            f"{self.reader.context.workspace.root}  {what}  "
            f"{plural(len(snapshot.cells), 'cell')}, {plural(runs, 'run')}  as of {at}"
        )
        if len(snapshot.cells) > MOST_CELLS:
            text.append(f"\nThe first {MOST_CELLS} cells. Press / for others.")
        for problem in snapshot.problems[:3]:
            text.append("\n")
            text.append_text(Text(one_line(problem), style="yellow", no_wrap=True))
        return text

    def _fill(self) -> None:
        cells = list(self.cells.values())
        names = wording.columns(cells) if cells else ["backbone", "dataset", "head"]
        base = self.cells.get(self.pinned or "")
        shown = [state for state in STATES if any(cell.states.get(state) for cell in cells)]
        score = ["MEAN ± STD", *(["Δ"] if base else [])]
        heading = ["", *names, "SEEDS", *score, "CURVE", *shown]
        rows = {cell.cell_id: self._row(cell, names, shown, base) for cell in cells}
        self.query_one(Listing).fill([name.upper() for name in heading], rows)

    def _row(
        self,
        cell: CellView,
        names: Sequence[str],
        shown: Sequence[RunState],
        base: CellView | None,
    ) -> list[Text]:
        sign = ("*" if cell.cell_id in self.marked else "") + (
            "=" if cell.cell_id == self.pinned else ""
        )
        difference = []
        if base is not None:
            known = cell.mean is not None and base.mean is not None
            gap = (cell.mean or 0.0) - (base.mean or 0.0)
            difference = [plain(f"{gap:+.2f}" if known and cell is not base else "")]
        counts = [
            Text(
                str(cell.states.get(state) or ""),
                style="red" if state in LOST else "",
                justify="right",
            )
            for state in shown
        ]
        return [
            plain(sign),
            *map(plain, wording.labels(cell, names)),
            plain(f"{cell.n}/{cell.planned}"),
            plain(wording.score(cell.mean, cell.std)),
            *difference,
            plain(self.curves.get(cell.cell_id, "")),
            *counts,
        ]

    def _chosen_cells(self) -> list[str]:
        current = self.query_one(Listing).current
        marked = [one for one in self.marked if one in self.cells]
        return marked or ([current] if current else [])

    def chosen(self) -> tuple[list[str], str]:
        cells = self._chosen_cells()
        runs = sum(self.cells[one].planned for one in cells)
        name = f"the {plural(runs, 'run')} of {plural(len(cells), 'cell')}"
        # Of a cell's runs those that the filter leaves, as they are counted.
        return ([*self.reader.words, f"cell={','.join(cells)}"] if cells else []), name

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Show the runs and the curves of the marked cells, or of this one."""
        cells = self._chosen_cells()
        if cells:
            self.app.push_screen(Runs(self.reader, self.every_s, cells))

    def action_mark(self) -> None:
        """Mark or unmark a cell: curves of marked cells are drawn over each other."""
        current = self.query_one(Listing).current
        if current is None:
            return
        if self.marked.pop(current, self) is self:
            self.marked[current] = None
        self._fill()
        self.query_one(Listing).action_cursor_down()

    def action_pin(self) -> None:
        """Show each mean's difference from this cell's, or no longer."""
        current = self.query_one(Listing).current
        self.pinned = None if current == self.pinned else current
        self._fill()

    def action_filter(self) -> None:
        """Type a selector."""
        box = self.query_one(Input)
        box.value, box.display = " ".join(self.reader.words), True
        box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        words = event.value.split()
        try:
            self.reader.check(words)
        except VtjobsError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.reader.words = words
        self.action_close_filter()
        self.refresh_now()

    def action_close_filter(self) -> None:
        """Leave the filter as it was; the first screen has none before it."""
        self.query_one(Input).display = False
        self.query_one(Listing).focus()

    def action_failures(self) -> None:
        """Show the failures by their cause."""
        self.app.push_screen(Failures(self.reader, self.every_s))

"""What the screens of `vtjobs top` have in common."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.coordinate import Coordinate
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Label

from ...jobs.errors import VtjobsError
from ...jobs.names import one_line, printable
from .reader import Reader

BACK = Binding("escape", "app.pop_screen", "Back")
ACTIONS = {"retry": "Retry", "cancel": "Cancel", "hold": "Hold", "release": "Release"}


def plain(text: object) -> Text:
    """Return a text of whatever origin without markup or control characters."""
    return Text(one_line(str(text)), no_wrap=True)


class Confirm(ModalScreen[bool]):
    """Ask before something is changed."""

    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm > Vertical { width: auto; max-width: 90%; height: auto; border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(plain(self.question))
            yield Label("y: yes   n: no")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class View(Screen[None]):
    """A screen that is filled from a reading in another thread, again and again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("R", "act('retry')", "Retry", show=False),
        Binding("C", "act('cancel')", "Cancel", show=False),
        Binding("H", "act('hold')", "Hold", show=False),
        Binding("L", "act('release')", "Release", show=False),
    ]

    def __init__(self, reader: Reader, every_s: float) -> None:
        super().__init__()
        self.reader = reader
        self.every_s = every_s

    def on_mount(self) -> None:
        self.refresh_now()
        self.set_interval(self.every_s, self.refresh_now)

    def refresh_now(self) -> None:
        """Read in a thread; what is read is shown in this one."""
        if self.is_current:
            self.run_worker(self._work, thread=True, exclusive=True, group="read")

    def _work(self) -> None:
        try:
            found = self.read()
        except (VtjobsError, OSError) as error:
            # What was read before stays: the ledger or the workspace may be back at the next look.
            self._say(str(error), severity="error")
            return
        self.app.call_from_thread(self._show, found)

    def _say(self, text: str, **options: Any) -> None:
        notify = partial(self.app.notify, printable(text)[-500:], markup=False, **options)
        self.app.call_from_thread(notify)

    def _show(self, found: Any) -> None:
        if self.is_mounted:
            self.show(found)

    def read(self) -> Any:
        """Return what is shown; in a thread of its own."""
        raise NotImplementedError

    def show(self, found: Any) -> None:
        """Show what was read."""
        raise NotImplementedError

    def chosen(self) -> tuple[list[str], str]:
        """Return the words that select what an action is about, and its name for people."""
        raise NotImplementedError

    def action_act(self, command: str) -> None:
        """Ask, then run a command on what is chosen."""
        words, name = self.chosen()
        if not words:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(lambda: self._act(command, words), thread=True, group="act")

        self.app.push_screen(Confirm(f"{ACTIONS[command]} {name}?"), answered)

    def _act(self, command: str, words: list[str]) -> None:
        self._say(self.reader.act(command, words), title=ACTIONS[command])
        self.app.call_from_thread(self.refresh_now)


class Listing(DataTable[Text]):
    """A table that is filled again and again, and knows what it shows."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.heading: list[str] = []
        self.shown: dict[str, list[Text]] = {}

    @property
    def current(self) -> str | None:
        """The key of the row where the cursor is."""
        if not self.row_count or not self.is_valid_coordinate(self.cursor_coordinate):
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    def fill(self, heading: Sequence[str], rows: dict[str, list[Text]]) -> None:
        """Show rows, and leave the cursor on the row where it was.

        Of rows that are there already only what has changed is drawn: the screen does not halt.
        """
        if self.heading == list(heading) and list(self.shown) == list(rows):
            changes = [
                (Coordinate(number, column), new)
                for number, (old_row, row) in enumerate(
                    zip(self.shown.values(), rows.values(), strict=True)
                )
                for column, (old, new) in enumerate(zip(old_row, row, strict=True))
                if old != new
            ]
            for place, text in changes:
                self.update_cell_at(place, text, update_width=True)
        else:
            self._begin_anew(heading, rows)
        self.heading, self.shown = list(heading), rows

    def _begin_anew(self, heading: Sequence[str], rows: dict[str, list[Text]]) -> None:
        key, scroll = self.current, self.scroll_y
        self.clear(columns=True)
        self.add_columns(*heading)
        for name, row in rows.items():
            self.add_row(*row, key=name)
        if key in rows:
            self.move_cursor(row=list(rows).index(key), scroll=False)
            self.scroll_to(y=scroll, animate=False)

"""The program behind `vtjobs top`."""

from textual.app import App

from .cells import Cells
from .reader import Reader


class Top(App[None]):
    """The program."""

    TITLE = "vtjobs"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    DataTable { height: 1fr; }
    #head, #chart, #remedy { height: auto; }
    """

    def __init__(self, reader: Reader, every_s: float) -> None:
        super().__init__()
        self.reader = reader
        self.every_s = every_s

    def on_mount(self) -> None:
        self.push_screen(Cells(self.reader, self.every_s))

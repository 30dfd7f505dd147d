"""What the screens show, read from workspace and ledger; no screen reads by itself."""

import threading
from collections.abc import Sequence

from ...analysis.findings.curves import CellCurve, learning_curves
from ...analysis.findings.usual_metric import usual_metric
from ...jobs.errors import BadInput, NothingMatched
from ...jobs.run.selector import Selection, parse_selection
from ...jobs.values import Value
from ...orchestrator.loop.context import Context
from ...orchestrator.loop.tick import look_or_say
from ...orchestrator.requests.as_typed import as_typed
from ...orchestrator.views import cells, details, failures, runs
from ...orchestrator.views.logs import tail
from ..printing.show import lines


class Snapshot(Value, frozen=True, kw_only=True):
    """What the first screen shows."""

    at: float
    """Seconds since 1970."""
    cells: Sequence[cells.CellView]
    problems: Sequence[str]
    """What somebody should know, each in a sentence."""


class Reader:
    """Reads for the screens, one reading at a time, from whatever thread."""

    def __init__(self, context: Context, words: Sequence[str]) -> None:
        self.context = context
        self.words = list(words)
        self._lock = threading.Lock()

    def check(self, words: Sequence[str]) -> None:
        """Refuse words that are no selection.

        Raises:
            BadInput, NothingMatched: with what is wrong.
        """
        with self._lock:
            cells.cells(self.context, parse_selection(list(words), default_all=True))

    def snapshot(self) -> Snapshot:
        """Take in what has happened, and return the cells; nothing is started or ended."""
        with self._lock:
            problems = look_or_say(self.context)
            try:
                selection = parse_selection(self.words, default_all=True)
                metric = usual_metric(self.context.ledger, selection)
                seen = cells.cells(self.context, selection, metric=metric)
            except NothingMatched:
                seen = []
            return Snapshot(at=self.context.clock(), cells=seen, problems=problems)

    def curves(self, cell_ids: Sequence[str]) -> list[CellCurve]:
        """Return the learning curves of cells; none where nothing was scored yet."""
        with self._lock:
            try:
                return learning_curves(self.context.ledger, _of_cells(cell_ids))
            except (BadInput, NothingMatched):
                return []

    def runs(self, cell_ids: Sequence[str]) -> list[runs.RunView]:
        """Return the runs of cells."""
        with self._lock:
            try:
                return runs.runs(self.context, _of_cells(cell_ids))
            except NothingMatched:
                return []

    def run_text(self, run_id: str) -> list[str]:
        """Return what `vtjobs show` says of a run, as lines."""
        with self._lock:
            return lines(details.show(self.context, run_id))

    def log(self, run_id: str) -> tuple[str, list[str]]:
        """Return the name of a run's newest log, and its last lines."""
        with self._lock:
            files = failures.logs_of(self.context, run_id)
        if not files:
            return "no log yet", []
        return str(files[0]), tail(files[0])

    def failures(self) -> list[failures.FailureGroup]:
        """Return the failed runs by their cause."""
        with self._lock:
            try:
                selection = parse_selection(self.words, default_all=True)
                return failures.failures(self.context, selection)
            except NothingMatched:
                return []

    def act(self, command: str, words: Sequence[str]) -> str:
        """Run a command that changes something, as typed; return what it said."""
        return as_typed(self.context, command, [*words, "--yes"])[1]


def _of_cells(cell_ids: Sequence[str]) -> Selection:
    return parse_selection([f"cell={','.join(cell_ids)}"])

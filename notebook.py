"""Results in Python: what notebooks and scripts read.

    import vtjobs

    grid = vtjobs.load("my-grid")
    grid.runs.frame()

Reading only: nothing is started, cancelled or submitted, no scheduler is asked, and no journal is
taken in. (A ledger that is missing is made anew.) What is shown is what the ledger knows:
`vtjobs status`, a queue that is at work or `vtjobs supervise` take in what has happened since.
"""

import html
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

from .jobs.documents import Document, to_plain
from .jobs.errors import BadInput, suggest

if TYPE_CHECKING:
    from .analysis.findings.cell import Cell
    from .analysis.findings.comparisons import Comparisons
    from .analysis.findings.curves import CellCurve
    from .db.engine import Connection
    from .jobs.run.selector import Selection
    from .jobs.workspace.events import Metrics
    from .orchestrator.loop.context import Context
    from .orchestrator.views.runs import RunView

T = TypeVar("T")

# So many records of a list are shown in a notebook; `frame` has all.
MOST_SHOWN = 30
# What `Results.compare` takes.
_OPTIONS = (
    *("metric", "set", "select", "test", "alpha", "margin", "min_effect", "baseline", "anytime"),
    *("family", "on_diverged", "correction", "over_datasets"),
)
# Fields whose own names become columns.
_SPREAD = ("axes", "values")


# There may be millions; no reference leads back to one, so the garbage collector skips them.
class EpochValues(Document, frozen=True, kw_only=True, gc=False):
    """What one run has at one epoch."""

    run_id: str
    attempt: int
    """The attempt that it comes from: of an epoch that was trained twice, the one that counts."""
    epoch: int
    step: int
    set: str
    """The evaluation set; `training`: metrics of training."""
    values: dict[str, float]
    """Metric -> value."""


class Records(list[T], Generic[T]):
    """A list of records that can become a table."""

    def rows(self) -> list[dict[str, Any]]:
        """Return each record as a dict; axes and values have keys of their own."""
        found = []
        for record in self:
            row = to_plain(record)
            for name in _SPREAD:
                row |= row.pop(name, None) or {}
            found.append(row)
        return found

    def frame(self) -> Any:
        """Return a DataFrame: of pandas, or of polars where that alone is installed.

        Raises:
            ImportError: neither is installed.
        """
        try:
            import pandas
        except ImportError:
            return _polars_frame(self.rows())
        return pandas.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        rows = Records(self[:MOST_SHOWN]).rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = ["".join(f"<td>{_cell(row.get(name))}</td>" for name in names) for row in rows]
        heading = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        more = f"<p>{len(self)} records, {len(rows)} shown</p>" if len(self) > len(rows) else ""
        return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>{more}"


def _polars_frame(rows: list[dict[str, Any]]) -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError("frame() needs pandas or polars. Run: pip install pandas") from None
    return polars.DataFrame(rows, infer_schema_length=None, strict=False)


def _cell(value: object) -> str:
    from .jobs.names import printable

    text = f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
    return html.escape(printable(text))


class Results:
    """Selected runs and what came of them. Each part is read when it is first asked for."""

    def __init__(self, context: "Context", selection: "Selection") -> None:
        self._context = context
        self._selection = selection

    def __repr__(self) -> str:
        return f"<{len(self.runs)} runs in {self._context.workspace.root}>"

    @cached_property
    def runs(self) -> "Records[RunView]":
        """The runs, as `vtjobs runs --json` has them."""
        from .orchestrator.views.runs import runs

        return Records(runs(self._context, self._selection))

    @cached_property
    def cells(self) -> "Records[Cell]":
        """The cells with mean and deviation over seeds, as `vtjobs report --json` has them."""
        from .analysis.findings.cells import planned
        from .analysis.findings.declared import settle

        plan = settle(self._context.ledger, self._selection, {})
        return Records(planned(self._context.ledger, self._selection, plan))

    @cached_property
    def epochs(self) -> Records[EpochValues]:
        """Metrics of training, a record for each run and epoch."""
        return self._by_epoch(of_training=True)

    @cached_property
    def evaluations(self) -> Records[EpochValues]:
        """Scores, a record for each run, epoch and set."""
        return self._by_epoch(of_training=False)

    def curves(self, metric: str | None = None, set_name: str = "test") -> "Records[CellCurve]":
        """Return learning curves over seeds, a record for each cell.

        Args:
            metric: of the scores; None: top1, miou on masks, ap_box on objects.
            set_name: that they were made on; `training` for metrics of training.

        Raises:
            BadInput: nothing has such a value.
        """
        from .analysis.findings.curves import learning_curves

        ledger = self._context.ledger
        found = learning_curves(ledger, self._selection, metric=metric, set_name=set_name)
        return Records(found)

    def compare(self, **options: Any) -> "Comparisons":
        """Compare each cell with its baseline, as `vtjobs compare --json` does.

        Args:
            options: those of the command, instead of what the grid declared, such as `metric`,
                `set`, `alpha`, `margin` or `baseline`.

        Raises:
            BadInput: an option does not exist, or has a value that it cannot have.
        """
        from .analysis.findings.comparisons import compare
        from .analysis.findings.declared import settle

        for name in options:
            if name not in _OPTIONS:
                raise BadInput(f"compare has no option {name!r}. {suggest(name, _OPTIONS)}")
        plan = settle(self._context.ledger, self._selection, options)
        cells = self.cells if not options else self._planned_cells(plan)
        return compare(cells, plan)

    def _planned_cells(self, plan: Any) -> "list[Cell]":
        from .analysis.findings.cells import planned

        return planned(self._context.ledger, self._selection, plan)

    def _by_epoch(self, *, of_training: bool) -> Records[EpochValues]:
        from .db.engine import reading

        run_ids = [run.run_id for run in self.runs]
        with reading(self._context.ledger.engine) as connection:
            return Records(_values(connection, run_ids, of_training=of_training))


def _values(
    connection: "Connection", run_ids: list[str], *, of_training: bool
) -> Iterator[EpochValues]:
    from .db.results import rows_that_count

    by_run: dict[str, dict[tuple[int, str], EpochValues]] = {run_id: {} for run_id in run_ids}
    for row, values in rows_that_count(connection, run_ids, of_training=of_training):
        run_id, attempt, step, epoch, set_name = row[:5]
        # A resumed attempt does some epochs anew.
        by_run[run_id][epoch, set_name] = EpochValues(
            run_id=run_id,
            attempt=attempt,
            epoch=epoch,
            step=step,
            set=set_name,
            values=values if _are_numbers(values) else _numbers(values),
        )
    for found in by_run.values():
        for place in sorted(found):
            yield found[place]


def _are_numbers(values: "Metrics") -> TypeGuard[dict[str, float]]:
    return all(type(value) is float or type(value) is int for value in values.values())


def _numbers(values: "Metrics") -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def load(*selection: str, workspace: str | None = None) -> Results:
    """Return the results of a grid, or of any other selection of runs.

    Args:
        selection: words as on the command line: grid names, run ids, conditions such as
            "head=drloc"; none: all runs.
        workspace: its folder; by default as configured, else ./runs.

    Raises:
        BadInput: a word cannot be read, or there is no such workspace.
        NothingMatched: no run is selected.
        LedgerUnreachable: the ledger is away.
    """
    from .db import queries
    from .db.engine import reading
    from .jobs.config.config import load_config
    from .jobs.config.which_workspace import not_found
    from .jobs.run.selector import parse_selection
    from .jobs.workspace.paths import NoWorkspace
    from .orchestrator.loop.context import open_context

    chosen = parse_selection(selection, default_all=True)
    config = load_config({"workspace": workspace})
    try:
        context = open_context(config, to_read=True)
    except NoWorkspace:
        raise not_found(config) from None
    with reading(context.ledger.engine) as connection:
        # A name that matches nothing is told here, not where a part is first read.
        queries.list_runs(connection, chosen, limit=1)
    return Results(context, chosen)

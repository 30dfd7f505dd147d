"""What each page shows, as documents; beside each page lies its document as JSON."""

from typing import Any

from ..analysis.findings.curves import CellCurve
from ..analysis.output.layout import Table
from ..jobs.documents import Document
from ..orchestrator.views.cells import CellView
from ..orchestrator.views.details import RunDetails
from ..orchestrator.views.failures import FailureGroup
from ..orchestrator.views.runs import RunView
from ..orchestrator.views.spent import Spent
from ..orchestrator.views.status import GridCounts, Status


class Line(Document, frozen=True, kw_only=True):
    """One line of a chart: values by epoch, and a band around them."""

    label: str
    epochs: list[int]
    values: list[float]
    low: list[float | None]
    """Mean minus one sample standard deviation; null for one seed."""
    high: list[float | None]
    """Mean plus one sample standard deviation; null for one seed."""
    single: bool = False
    """One seed, drawn thin."""


class Chart(Document, frozen=True, kw_only=True):
    """Lines over epochs."""

    title: str
    text: str
    """What it shows, for who cannot see it."""
    metric: str
    """On the vertical axis."""
    lines: list[Line]


class Overview(Document, frozen=True, kw_only=True):
    """The first page."""

    status: Status
    """As `vtjobs status` has it."""
    descriptions: dict[str, str]
    """Grid -> what its file says of it."""
    failed: int
    """Groups of failed runs."""


class MatrixRow(Document, frozen=True, kw_only=True):
    """Cells that differ in the head alone."""

    labels: list[str]
    """One for each heading."""
    cells: list[CellView | None]
    """One for each head; null: the grid has none."""


class GridPage(Document, frozen=True, kw_only=True):
    """One grid: its cells, backbone and dataset downwards, heads across."""

    grid: GridCounts
    description: str
    headings: list[str]
    """Of the labels."""
    heads: list[str]
    rows: list[MatrixRow]
    charts: list[Chart]
    """Of the first rows: a line for each head."""
    undrawn: int
    """Rows without a chart."""
    metric: str
    """Of the cells' scores, on the test set."""
    comparison: Table | None
    """Of each cell with its baseline; null while runs are to come."""


class CellPage(Document, frozen=True, kw_only=True):
    """One cell."""

    cell: CellView
    chart: Chart | None
    """Mean with a band, and each seed; null: nothing was scored."""
    runs: list[RunView]
    curve: CellCurve | None
    """The values behind the chart."""


class LogFile(Document, frozen=True, kw_only=True):
    """A file that an attempt's processes wrote to."""

    attempt: int
    name: str
    bytes: int


class RunPage(Document, frozen=True, kw_only=True):
    """One run."""

    run: RunDetails
    """As `vtjobs show` has it."""
    charts: list[Chart]
    """Of its scores and of its loss."""
    logs: list[LogFile]
    """The newest attempt's first."""
    tail: list[str]
    """The last lines of the first of them."""


class Group(Document, frozen=True, kw_only=True):
    """Runs that do the same."""

    title: str
    runs: list[RunView]
    """The first of them."""
    total: int
    """Of all."""


class Activity(Document, frozen=True, kw_only=True):
    """What runs, and what waits for what."""

    groups: list[Group]


class Failures(Document, frozen=True, kw_only=True):
    """Failed runs by their cause, as `vtjobs failures` has them."""

    groups: list[FailureGroup]


class Usage(Document, frozen=True, kw_only=True):
    """What runs cost, as `vtjobs usage` has it."""

    by_grid: list[Spent]
    by_user: list[Spent]


PageDocument = Overview | GridPage | CellPage | RunPage | Activity | Failures | Usage


def plain_chart(chart: Chart) -> dict[str, Any]:
    """Return what the page's script needs to draw a chart."""
    epochs = sorted({epoch for line in chart.lines for epoch in line.epochs})
    lines = []
    for line in chart.lines:
        places = {epoch: place for place, epoch in enumerate(line.epochs)}
        at = [places.get(epoch) for epoch in epochs]
        lines.append(
            {
                "label": line.label,
                "single": line.single,
                **{
                    name: [None if place is None else values[place] for place in at]
                    for name, values in _values(line).items()
                },
            }
        )
    return {"epochs": epochs, "metric": chart.metric, "lines": lines}


def _values(line: Line) -> dict[str, list[float] | list[float | None]]:
    found: dict[str, list[float] | list[float | None]] = {"values": line.values}
    if any(value is not None for value in line.low):
        found |= {"low": line.low, "high": line.high}
    return found

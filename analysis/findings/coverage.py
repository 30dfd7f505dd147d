"""How many numbers of each table of a paper can be compared with ours."""

from collections import Counter
from collections.abc import Sequence

from ...jobs.documents import Document
from ..stats.difference import ALPHA
from .against import Standing, against
from .cell import Cell
from .matching import reading_of
from .published import select
from .ready_grids import grids_of

SCHEMA_VERSION = 1


class TableCoverage(Document, frozen=True, kw_only=True):
    """How many numbers of a table can be compared with ours."""

    schema_version: int
    table: str
    """In the paper."""
    grids: list[str]
    """The ready grids that run what is behind its numbers."""
    accuracies: int
    """Printed numbers that `against` compares."""
    others: int
    """Printed numbers that vtjobs does not measure."""
    standings: dict[Standing, int]
    """How far they are from a comparison -> how many are."""
    words: dict[str, int]
    """Verdict -> numbers with it, among those compared."""


def coverage(
    paper: str, cells: Sequence[Cell], *, alpha: float = ALPHA, margin: float | None = None
) -> list[TableCoverage]:
    """Count for each table of a paper what can be compared.

    A number beside which several cells of ours stand counts once: as the first of them.

    Args:
        paper: `drloc`.
        cells: a report's, with their descriptions.
        alpha: of each table's tests, adjusted for their number (Holm).
        margin: as of `against`.

    Raises:
        BadInput: there is no such paper.
    """
    found = []
    for table in dict.fromkeys(record.table for record in select(paper)):
        records = select(f"{paper}:{table}")
        document = against(f"{paper}:{table}", cells, alpha=alpha, margin=margin)
        rows = list({row.id: row for row in reversed(document.rows)}.values())
        found.append(
            TableCoverage(
                schema_version=SCHEMA_VERSION,
                table=table,
                grids=list(grids_of(paper, table)),
                accuracies=len(rows),
                others=sum(reading_of(record) is None for record in records),
                standings={
                    standing: sum(row.standing is standing for row in rows) for standing in Standing
                },
                words=dict(sorted(Counter(row.word for row in rows if row.comparable).items())),
            )
        )
    return found

"""A report as papers print it: a row for each method, a column for each dataset."""

from collections import Counter
from collections.abc import Sequence

from ..findings.cell import Cell
from .layout import Table
from .notes import report_notes
from .wording import DECIMALS, columns, labels, score


def of_cells(cells: Sequence[Cell], *, decimals: int = DECIMALS) -> Table:
    """Return mean ± std by dataset, gains below the baseline's in brackets, n where it is not the
    usual one.
    """
    names = [name for name in columns(cells) if name != "dataset"]
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    rows: list[tuple[list[str], dict[str, Cell]]] = []
    for cell in cells:
        label = labels(cell, names)
        free = [own for other, own in rows if other == label and cell.dataset not in own]
        if not free:
            # Never one cell in another one's place, whatever they have in common.
            rows.append((label, {}))
            free = [rows[-1][1]]
        free[0][cell.dataset] = cell
    usual = Counter(sorted((cell.n for cell in cells if cell.n), reverse=True)).most_common(1)
    most = usual[0][0] if usual else 0
    body, bold = [], []
    for number, (label, own) in enumerate(rows):
        body.append([*label, *(_text(own.get(name), most, decimals) for name in datasets)])
        bold += [
            (number, len(names) + column)
            for column, name in enumerate(datasets)
            if name in own and own[name].marked.best
        ]
    said = report_notes(cells, decimals)
    said += [f"n={most} unless stated otherwise."] if most else []
    if any(cell.gain is not None for cell in cells):
        said.append(f"In brackets: gain over {cells[0].baseline_head}.")
    if any(_incomplete(cell) for cell in cells):
        said.append("‡ some planned seeds are missing.")
    return Table(
        heading=[*names, *datasets], body=body, notes=said, labels=len(names), bold=frozenset(bold)
    )


def _incomplete(cell: Cell) -> bool:
    return cell.n < cell.planned


def _text(cell: Cell | None, most: int, decimals: int) -> str:
    if cell is None:
        return ""
    parts = [score(cell.mean, cell.std, decimals)]
    if cell.gain is not None:
        parts.append(f"({cell.gain:+.{decimals}f})")
    if cell.n not in (0, most):
        parts.append(f"n={cell.n}")
    signs = ("†" if cell.marked.dagger else "") + ("‡" if _incomplete(cell) else "")
    return " ".join([*parts, signs]).rstrip()

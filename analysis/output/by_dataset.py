"""A report as papers print it: a row for each method, a column for each dataset, set or setting."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from statistics import fmean

from ..findings.cell import Cell
from .layout import Table
from .notes import report_notes
from .wording import DECIMALS, columns, labels, score


def of_cells(cells: Sequence[Cell], *, across: str = "dataset", decimals: int = DECIMALS) -> Table:
    """Return mean ± std by dataset, gains below the baseline's in brackets, n where it is not the
    usual one.

    Cells on several sets of images have a column for each set, and their dataset in the label. A
    run that was trained on the very classes by which others are judged is in their column: so
    levels of training against levels of testing make a matrix (Touvron's thesis, table 2.14).

    Args:
        cells: of a report.
        across: the setting whose values are the columns, where there is one set of images.
        decimals: of the scores.
    """
    sets = {cell.set for cell in cells}
    by_set = len(sets) > 1
    cells = _without_own_names(cells) if by_set else cells
    names = [name for name in columns(cells) if by_set or name != across]

    def column_of(cell: Cell) -> str:
        return _set_of(cell, sets) if by_set else labels(cell, [across])[0] or "–"

    places = list(dict.fromkeys(map(column_of, cells)))
    rows = _rows(cells, names, column_of)
    usual = Counter(sorted((cell.n for cell in cells if cell.n), reverse=True)).most_common(1)
    most = usual[0][0] if usual else 0
    body, bold = [], []
    # Sets are scored by the same runs: a mean over them is nobody's score.
    averages = len(places) > 1 and not by_set and across == "dataset"
    for number, (label, own) in enumerate(rows):
        texts = [_text(own.get(name), most, decimals) for name in places]
        body.append([*label, *texts, *([_average(own, places, decimals)] if averages else [])])
        bold += [
            (number, len(names) + column)
            for column, name in enumerate(places)
            if name in own and own[name].marked.best
        ]
    said = report_notes(cells, decimals)
    said += [f"n={most} unless stated otherwise."] if most else []
    if any(cell.gain is not None for cell in cells):
        said.append(f"In brackets: gain over {cells[0].baseline_head}.")
    said += [] if by_set or across == "dataset" else [f"Columns: {across}."]
    said += ["Average: unweighted, over the datasets of the table."] if averages else []
    said += _signs(cells)
    heading = [*names, *places, *(["average"] if averages else [])]
    return Table(heading=heading, body=body, notes=said, labels=len(names), bold=frozenset(bold))


def _rows(
    cells: Sequence[Cell], names: Sequence[str], column_of: Callable[[Cell], str]
) -> list[tuple[list[str], dict[str, Cell]]]:
    """Return rows as their labels and, by column, the cells that have these labels."""
    rows: list[tuple[list[str], dict[str, Cell]]] = []
    for cell in cells:
        label = labels(cell, names)
        free = [own for other, own in rows if other == label and column_of(cell) not in own]
        if not free:
            # Never one cell in another one's place, whatever they have in common.
            rows.append((label, {}))
            free = [rows[-1][1]]
        free[0][column_of(cell)] = cell
    return rows


def _signs(cells: Sequence[Cell]) -> list[str]:
    """Say what signs beside the scores mean, where there are any."""
    told = {
        "‡ some planned seeds are missing.": any(map(_incomplete, cells)),
        "§ seeds were imported.": any(cell.imported_values for cell in cells),
    }
    return [text for text, is_there in told.items() if is_there]


def _set_of(cell: Cell, sets: Collection[str]) -> str:
    """Return the set of a cell's column: that of the run's own classes, where others have it."""
    own = f"{cell.set}@{cell.dataset}"
    return own if own in sets else cell.set


def _without_own_names(cells: Sequence[Cell]) -> list[Cell]:
    """Leave out cells without a score where another one has it by the usual name.

    Scores by a run's own classes are those of the set itself: it has none by their name.
    """
    sets = {cell.set for cell in cells}

    def is_own(cell: Cell) -> bool:
        base, _, labels_of = cell.set.partition("@")
        return labels_of == cell.dataset and base in sets

    return [cell for cell in cells if cell.n or not is_own(cell)]


def _average(own: dict[str, Cell], datasets: Sequence[str], decimals: int) -> str:
    """Return the mean over all datasets, with its gain; nothing where one has no value."""
    means = [own[name].mean for name in datasets if name in own]
    gains = [own[name].gain for name in datasets if name in own]
    known = [mean for mean in means if mean is not None]
    if len(known) < len(datasets):
        return ""
    gained = [gain for gain in gains if gain is not None]
    shown = f" ({fmean(gained):+.{decimals}f})" if len(gained) == len(datasets) else ""
    return f"{fmean(known):.{decimals}f}{shown}"


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
    signs += "§" if cell.imported_values else ""
    return " ".join([*parts, signs]).rstrip()

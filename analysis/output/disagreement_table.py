"""How often classifiers decide differently, as a table: a row and a column for each."""

import itertools
from collections.abc import Sequence
from typing import Any

from ..findings.disagreement import Disagreement, Without
from .csv_text import csv_text
from .layout import Table
from .wording import DECIMALS, columns, label_of, labels


def of_disagreement(
    found: Disagreement, without: Sequence[Without], *, decimals: int = DECIMALS
) -> Table:
    """Return one table; its columns bear the numbers of its rows.

    Args:
        found: the classifiers on one set of images.
        without: cells that are in no table; each is told below.
        decimals: of the shares.
    """
    names = columns(found.classifiers)
    places = [str(number) for number in range(1, len(found.classifiers) + 1)]
    body = [
        [
            place,
            *labels(one, names),
            ", ".join(map(str, one.seeds)),
            _share(one.error, decimals),
            *(_share(value, decimals) for value in rates),
        ]
        for place, one, rates in zip(places, found.classifiers, found.rates, strict=True)
    ]
    notes = [
        (
            f"% of the {found.images:,} images of {found.set} on which two classifiers choose"
            " different classes, mean over pairs of their runs with different seeds. Diagonal: the"
            " same within one cell; 0 for a single run with itself."
        ),
        "error: % of images on which the classifier is wrong, mean over seeds.",
    ]
    notes += [f"{label_of(one)}: left out, as {one.why}." for one in without]
    return Table(
        heading=["", *names, "seeds", "error", *places],
        body=body,
        notes=notes,
        labels=len(names) + 2,
    )


def as_csv(found: Sequence[Disagreement]) -> str:
    """Return a line for each pair of classifiers."""
    heading = ["set", "images", "cell", "seeds", "error", "other_cell", "other_seeds"]
    rows: list[list[Any]] = []
    for table in found:
        pairs = itertools.product(enumerate(table.classifiers), repeat=2)
        for (first, one), (second, other) in pairs:
            values = [rates[first][second] for rates in (table.rates, table.same_seed)]
            rows.append(
                [
                    *(table.set, table.images),
                    *(one.cell_id, " ".join(map(str, one.seeds)), one.error),
                    *(other.cell_id, " ".join(map(str, other.seeds))),
                    *("" if value is None else value for value in values),
                ]
            )
    return csv_text([*heading, "disagreement", "same_seed"], rows)


def _share(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:.{decimals}f}"

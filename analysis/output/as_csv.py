"""Documents as CSV: a line per item, full precision.

An empty field is a number that does not exist.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from ..findings.against import Against
from ..findings.cell import Cell
from ..findings.comparisons import Comparisons
from ..findings.per_image import CellSplit
from .wording import columns, labels


def of_cells(cells: Sequence[Cell]) -> str:
    """Return one line per cell of a report."""
    names = columns(cells)
    numbers = ("n", "planned", "mean", "std", "gain", "best_minus_last")
    rows = []
    for cell in cells:
        seeds, values = " ".join(map(str, cell.values)), " ".join(map(repr, cell.values.values()))
        rows.append(
            [
                *labels(cell, names),
                cell.metric,
                cell.set,
                *_numbers(cell, numbers),
                seeds,
                values,
            ]
        )
    return _text([*names, "metric", "set", *numbers, "seeds", "values"], rows)


def of_comparisons(document: Comparisons) -> str:
    """Return one line per comparison."""
    found = document.comparisons
    names = columns(found)
    numbers = (
        "n",
        "n_baseline",
        "difference",
        "error",
        "df",
        "p",
        "p_adjusted",
        "p_equivalence",
        "effect",
    )
    rows = [
        [
            *labels(one, names),
            one.baseline_head,
            one.metric,
            one.set,
            *_numbers(one, numbers),
            *(one.interval or ("", "")),
            one.verdict,
            one.detail,
        ]
        for one in found
    ]
    return _text(
        [*names, "over", "metric", "set", *numbers, "low", "high", "verdict", "detail"], rows
    )


def of_published(document: Against) -> str:
    """Return one line per printed number."""
    names = ("id", "dataset", "backbone", "method")
    numbers = (
        "printed",
        "printed_std",
        "printed_n",
        "ours",
        "ours_std",
        "ours_n",
        "ours_last",
        "ours_last_std",
        "difference",
        "p",
        "p_worst",
        "p_adjusted",
    )
    rows = [
        [
            *(getattr(row, name) for name in names),
            " ".join(f"{key}={value}" for key, value in row.variant.items() if value is not None),
            row.doubtful,
            *_numbers(row, numbers),
            *(row.interval or ("", "")),
            row.word,
            row.detail,
        ]
        for row in document.rows
    ]
    return _text(
        [*names, "variant", "doubtful", *numbers, "low", "high", "verdict", "detail"], rows
    )


def of_variances(cells: Sequence[CellSplit]) -> str:
    """Return one line per part of a cell's spread.

    What the images say, and each stream of each of its studies.
    """
    names = columns(cells)
    numbers = (
        "n",
        "std",
        "std_carries",
        "std_test_set",
        "std_binomial",
        "disagreement",
        "disagreement_baseline",
        "variance",
        "share",
        "low",
        "high",
        "total_share",
        "total_low",
        "total_high",
        "p",
        "ratio",
    )
    rows: list[list[Any]] = []
    for cell in cells:
        if cell.n:
            rows.append([*labels(cell, names), "images", "", *_numbers(cell, numbers)])
        for study in cell.studies or []:
            for part in _parts(study):
                rows.append(
                    [
                        *labels(cell, names),
                        study["design"],
                        part["stream"],
                        *_numbers(part, numbers),
                    ]
                )
    return _text([*names, "of", "stream", *numbers], rows)


def _parts(study: dict[str, Any]) -> list[dict[str, Any]]:
    parts = study["parts"] or {"streams": []}
    found = list(parts["streams"])
    found += [{**one, "stream": " x ".join(one.streams)} for one in parts.get("terms", ())]
    for name in ("hardware", "all", "repeat"):
        if parts.get(name) is not None:
            found.append({**parts[name], "stream": name})
    return [
        one
        | dict(
            zip(
                ("low", "high"),
                one.get("share_interval") or one.get("std_interval") or (None, None),
                strict=True,
            )
        )
        | dict(
            zip(
                ("total_low", "total_high"),
                one.get("total_share_interval") or (None, None),
                strict=True,
            )
        )
        for one in found
    ]


def _numbers(item: object, names: Iterable[str]) -> list[Any]:
    """Return the fields of a document of these names; what it has not is empty."""
    values = item if isinstance(item, dict) else {name: getattr(item, name, None) for name in names}
    return ["" if values.get(name) is None else values[name] for name in names]


def _text(heading: list[str], rows: list[list[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return stream.getvalue()

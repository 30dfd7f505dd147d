"""Documents as CSV: a line per item, full precision.

An empty field is a number that does not exist.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...jobs.values import asdict
from ..findings.cell import Cell
from ..findings.comparisons import Comparisons
from ..findings.per_image import CellSplit
from ..findings.study import AnyStudy, design_of
from ..stats.components import Arm, Arms, Part, StreamPart
from .csv_text import csv_text
from .over_datasets import lines
from .study_table import arms_of
from .wording import columns, labels

if TYPE_CHECKING:
    # With the whole catalogue of grids, which most reports do without.
    from ..findings.against import Against
    from ..findings.coverage import TableCoverage

# All seeds of a cell without a value, and those of them that diverged, were lost, or are not scored
# yet.
WITHOUT_VALUE = ("missing_seeds", "diverged_seeds", "lost_seeds", "unscored_seeds")


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
                *(cell.gain_interval or ("", "")),
                len(cell.imported_values),
                *(" ".join(map(str, getattr(cell, name))) for name in WITHOUT_VALUE),
            ]
        )
    ends = ["seeds", "values", "gain_low", "gain_high", "imported", *WITHOUT_VALUE]
    return csv_text([*names, "metric", "set", *numbers, *ends], rows)


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
            *(one.effect_interval or ("", "")),
            len(one.imported),
        ]
        for one in found
    ]
    ends = ["low", "high", "verdict", "detail", "effect_low", "effect_high", "imported"]
    return csv_text([*names, "over", "metric", "set", *numbers, *ends], rows)


def of_pooled(document: Comparisons) -> str:
    """Return a line per head and dataset, and one with an empty dataset for all of them."""
    names = [name for name in columns(document.pooled) if name != "dataset"]
    numbers = ("n", "n_baseline", "difference", "error", "p", "p_adjusted", "p_equivalence", "tau")
    rows = []
    for one, part in lines(document):
        shown = part or one
        rows.append(
            [
                *labels(one, names),
                one.baseline_head,
                part.dataset if part else "",
                one.metric,
                one.set,
                *_numbers(shown, numbers),
                *(shown.interval or ("", "")),
                "" if part else one.verdict,
                part.why_not if part else one.detail,
            ]
        )
    ends = ["low", "high", "verdict", "detail"]
    return csv_text([*names, "over", "dataset", "metric", "set", *numbers, *ends], rows)


def of_coverage(tables: "Sequence[TableCoverage]") -> str:
    """Return one line per table."""
    from ..findings.against import Standing

    rows = [
        [
            one.table,
            " ".join(one.grids),
            one.accuracies,
            *(one.standings[standing] for standing in Standing),
            one.others,
        ]
        for one in tables
    ]
    return csv_text(["table", "grids", "accuracies", *Standing, "others"], rows)


def of_published(document: "Against") -> str:
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
            row.cited,
            *_numbers(row, numbers),
            *(row.interval or ("", "")),
            row.word,
            row.detail,
            row.standing,
            row.grid or "",
        ]
        for row in document.rows
    ]
    return csv_text(
        [
            *names,
            "variant",
            "doubtful",
            "cited",
            *numbers,
            "low",
            "high",
            "verdict",
            "detail",
            "standing",
            "grid",
        ],
        rows,
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
        "std_carries_low",
        "std_carries_high",
    )
    rows: list[list[Any]] = []
    for cell in cells:
        if cell.n:
            low, high = cell.std_carries_interval or (None, None)
            ends = {"std_carries_low": low, "std_carries_high": high}
            own = _numbers(asdict(cell) | ends, numbers)
            rows.append([*labels(cell, names), "images", "", *own])
        for study in cell.studies or []:
            for name, part in _parts(study):
                values = _bounds(part) | asdict(part)
                mine = [*labels(cell, names), design_of(study), name]
                rows.append([*mine, *(values.get(number) for number in numbers)])
    return csv_text([*names, "of", "stream", *numbers], rows)


def _parts(study: AnyStudy) -> list[tuple[str, Part | Arm]]:
    """Return what a study consists of, by name."""
    if study.parts is None:
        return []
    if isinstance(study.parts, Arms):
        return [(arm.stream, arm) for arm in arms_of(study.parts)]
    found: list[tuple[str, Part | Arm]] = [(one.stream, one) for one in study.parts.streams]
    found += [(" x ".join(term.streams), term) for term in study.parts.terms]
    return found + ([("hardware", study.parts.hardware)] if study.parts.hardware else [])


def _bounds(part: Part | Arm) -> dict[str, float | None]:
    """Return the ends of a part's intervals."""
    own = part.std_interval if isinstance(part, Arm) else part.share_interval
    total = part.total_share_interval if isinstance(part, StreamPart) else None
    (low, high), (total_low, total_high) = own or (None, None), total or (None, None)
    return {"low": low, "high": high, "total_low": total_low, "total_high": total_high}


def _numbers(item: object, names: Iterable[str]) -> list[Any]:
    """Return the fields of a document of these names; what it has not is empty."""
    values = item if isinstance(item, dict) else {name: getattr(item, name, None) for name in names}
    return ["" if values.get(name) is None else values[name] for name in names]

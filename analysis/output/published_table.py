"""Our numbers beside a paper's: a row for each, as the paper prints them, and counts by table."""

from collections.abc import Sequence

from ..findings.against import Against, Row, Standing
from ..findings.coverage import TableCoverage
from .layout import Table
from .wording import as_range, count, p_value, score


def of_rows(document: Against) -> Table:
    """Return our numbers beside printed ones as text."""
    level = f"{100 * (1 - document.alpha):g}% CI"
    several = _has_several_metrics(document)
    chosen = document.selection == "best"
    scores = ["ours, best epoch", "ours, last epoch"] if chosen else ["ours"]
    what = ["dataset", "backbone", "method", "variant", *(["metric"] if several else [])]
    heading = [*what, "printed", *scores, "difference", level, "p", "verdict"]
    body = [_line(row, several=several, chosen=chosen) for row in document.rows]
    said = (
        "Welch's test where the paper prints a standard deviation over runs. Where it prints a "
        "single number: Crawford and Howell's test. p is the largest that the paper's rounding and "
        "ddof (0 or 1) allow, Holm-corrected over the comparable rows."
    )
    if chosen:
        said += (
            " The paper prints each run's best epoch on the reported set. In this table, and in no "
            "other, ours are chosen in the same way."
        )
    notes = [said]
    if (margin := document.margin) is not None:
        notes.append(f"Reproduced: equivalent within ±{margin:g} by two one-sided tests.")
    return Table(heading=heading, body=body, notes=notes, labels=4 + several)


def _line(row: Row, *, several: bool, chosen: bool) -> list[str]:
    """Return a printed number and ours as texts; see `of_rows`."""
    seeds = count(row.ours_n, row.ours_planned, {})
    return [
        row.dataset,
        row.backbone,
        row.method,
        _variant(row),
        *([row.metric] if several else []),
        _printed(row),
        score(row.ours, row.ours_std) + (f" ({seeds})" if row.ours_n else ""),
        *([score(row.ours_last, row.ours_last_std)] if chosen else []),
        "" if row.difference is None else f"{row.difference:+.2f}",
        as_range(row.interval),
        p_value(row.p_adjusted),
        row.word + (f": {row.detail}" if row.detail else ""),
    ]


def _has_several_metrics(document: Against) -> bool:
    return len({row.metric for row in document.rows}) > 1


def as_printed(document: Against) -> Table:
    """Return a table as papers print it: a column for each dataset, ours below the printed numbers.

    What is not comparable is left out.
    """
    datasets = list(dict.fromkeys(row.dataset for row in document.rows))
    several = _has_several_metrics(document)
    lines: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for row in document.rows:
        epochs = "" if row.epochs is None else str(row.epochs)
        metric = [row.metric] if several else []
        line = lines.setdefault((row.backbone, row.method, _variant(row), *metric, epochs), {})
        line.setdefault(row.dataset, []).append(row)
    body = []
    for label, line in lines.items():
        printed = [_first(line.get(dataset, ())) for dataset in datasets]
        body.append([*label, "paper", *(_printed(row) if row else "" for row in printed)])
        ours = [_compared(line.get(dataset, ())) for dataset in datasets]
        if any(ours):
            body.append([*[""] * len(label), "ours", *ours])
    compared = sum(row.comparable for row in document.rows)
    notes = [
        f"{compared} of {len({row.id for row in document.rows})} printed numbers have a comparable "
        "cell of ours. Without --wide there is a reason for each of the others."
    ]
    metric = ["metric"] if several else []
    heading = ["backbone", "method", "variant", *metric, "epochs", "", *datasets]
    return Table(heading=heading, body=body, notes=notes, labels=5 + several)


def of_coverage(tables: Sequence[TableCoverage]) -> Table:
    """Return how many numbers of each table can be compared with ours."""
    standings = list(Standing)
    body = [
        [
            one.table,
            ", ".join(one.grids),
            str(one.accuracies),
            *(str(one.standings[standing] or "") for standing in standings),
            str(one.others or ""),
            ", ".join(f"{number} {word}" for word, number in one.words.items()),
        ]
        for one in tables
    ]
    total = [
        sum(one.accuracies for one in tables),
        *(sum(one.standings[standing] for one in tables) for standing in standings),
        sum(one.others for one in tables),
    ]
    body.append(["all", "", *map(str, total), ""])
    words = [standing.replace("_", " ") for standing in standings]
    heading = ["table", "ready grid", "accuracies", *words, "other metrics", "verdicts"]
    notes = ["Not run: a ready grid has the cell. Made otherwise: a setting of your cell differs."]
    return Table(heading=heading, body=body, notes=notes, labels=2)


def _first(rows: Sequence[Row]) -> Row | None:
    return rows[0] if rows else None


def _compared(rows: Sequence[Row]) -> str:
    return "; ".join(
        f"{score(row.ours, row.ours_std)} (n={row.ours_n})" for row in rows if row.comparable
    )


def _printed(row: Row) -> str:
    text = f"{row.printed:.2f}"
    text += f" ± {row.printed_std:.2f}" if row.printed_std is not None else ""
    marks = ["doubtful"] if row.doubtful else []
    marks += ["cited"] if row.cited else []
    return text + (f" ({', '.join(marks)})" if marks else "")


def _variant(row: Row) -> str:
    return ", ".join(f"{key}={value}" for key, value in row.variant.items() if value is not None)

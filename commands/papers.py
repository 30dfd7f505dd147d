"""What papers print, and what is left of it when it is computed anew."""

from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json

if TYPE_CHECKING:
    from ..analysis.findings.published import AuditedGain

Name = Annotated[
    str,
    typer.Argument(
        metavar="PAPER[:TABLE]",
        help="Paper (drloc, relvit or thesis), or one of its tables, e.g. drloc:3.",
    ),
]


def papers_show(name: Name, as_json: Json = False) -> None:
    """List a paper's published results as printed."""
    from ..analysis.findings.published import select
    from .printing import terminal

    found = select(name)
    if as_json:
        terminal.emit_json(found)
        return
    rows = [
        [
            record.table,
            record.dataset,
            record.backbone,
            record.method,
            " ".join(f"{key}={value}" for key, value in record.variant.items()),
            str(record.epochs or ""),
            record.metric,
            f"{record.mean:.{record.decimals}f}"
            + (f" ± {record.std:.{record.decimals}f}" if record.std is not None else ""),
            str(record.n_seeds or "?"),
            ", ".join(["doubtful"] * bool(record.doubtful) + ["cited"] * record.cited),
        ]
        for record in found
    ]
    heading = [
        "TABLE",
        "DATASET",
        "BACKBONE",
        "METHOD",
        "VARIANT",
        "EPOCHS",
        "METRIC",
        "PRINTED",
        "N",
        "",
    ]
    terminal.print_table(heading, rows, right=(5, 7, 8))


def papers_audit(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAPER[:TABLE]]",
            help="Paper, or one of its tables, e.g. drloc:3 [default: all papers].",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute the gains printed in papers and test them.

    Lists the printed gains that differ from the difference of the printed means, and tests the
    gains for which a standard deviation is printed.
    """
    from ..analysis.findings.published import PAPERS
    from ..analysis.findings.published import audit as check
    from ..analysis.output.wording import p_value
    from .printing import terminal

    found = [row for one in ([name] if name else PAPERS) for row in check(one)]
    if as_json:
        terminal.emit_json(found)
        return
    wrong = [row for row in found if row.agrees is False]
    tested = [row for row in found if row.p is not None]
    heading = ["TABLE", "DATASET", "BACKBONE", "METRIC", "METHOD", "OVER", "GAIN"]
    if wrong:
        rows = [[*_label(row), f"{row.printed:+.2f}"] for row in wrong]
        terminal.print_table([*heading, "PRINTED"], rows, right=(6, 7))
        terminal.write("")
    if tested:
        rows = [
            [*_label(row), _range(row.interval), p_value(row.p), p_value(row.p_worst)]
            for row in tested
        ]
        terminal.print_table([*heading, "95% CI", "P", "P AT WORST"], rows, right=(6, 8, 9))
    printed = sum(row.printed is not None for row in found)
    terminal.say(
        f"{printed} printed gains; {len(wrong)} of them differ from the gains that the printed "
        f"means give. {len(tested)} of {len(found)} comparisons have a printed standard deviation "
        "and are tested: Welch, or Crawford and Howell against a single number. P AT WORST: the "
        "largest p that rounding and ddof 0 allow. Not corrected for multiple comparisons."
    )


def _label(row: "AuditedGain") -> list[str]:
    table = f"{row.id.partition('.')[0]}:{row.table}"
    names = [row.dataset, row.backbone, row.metric, row.method, row.baseline_method]
    return [table, *names, f"{row.recomputed:+.2f}"]


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"[{interval[0]:+.2f}, {interval[1]:+.2f}]"

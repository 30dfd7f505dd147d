"""Options of the commands that print results."""

from pathlib import Path
from typing import Annotated

import typer

FigureFolder = Annotated[
    Path | None,
    typer.Option(help="Folder for the figure as SVG, PDF and CSV (created if missing)."),
]
DataFormat = Annotated[
    str, typer.Option("--format", "-f", help="Output format: table, csv or json.")
]
CurveMetric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help=(
            "Metric, e.g. top1, top5, loss or ema_top1 "
            "[default: top1; miou on masks, ap_box on objects]."
        ),
    ),
]
SetName = Annotated[str, typer.Option("--set", help="Evaluation set.")]
Baseline = Annotated[
    str | None,
    typer.Option(
        help="Baseline head, or `each` for every pair [default: as declared, else supervised].",
    ),
]
PlannedMetric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help=(
            "Metric, e.g. top1, top5, loss or ema_top1 "
            "[default: as declared, else top1; miou on masks, ap_box on objects]."
        ),
    ),
]
PlannedSet = Annotated[
    str | None,
    typer.Option("--set", help="Evaluation set [default: as declared, else test]."),
]
Select = Annotated[
    str | None,
    typer.Option(
        help=(
            "Epoch to score: last, best_val (best on the validation set) "
            "or ema_last (last epoch, EMA weights) [default: as declared, else last]."
        )
    ),
]
Decimals = Annotated[int, typer.Option(min=0, max=6, help="Decimal places.")]
Format = Annotated[
    str,
    typer.Option("--format", "-f", help="Output format: table, markdown, latex, csv or json."),
]
TestName = Annotated[
    str | None,
    typer.Option(help="Test: welch, or paired (by seed) [default: as declared, else welch]."),
]
Alpha = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        max=0.5,
        help=(
            "Family-wise significance level; false discovery rate with --family screen "
            "[default: as declared, else 0.05]."
        ),
    ),
]
EquivalenceMargin = Annotated[
    float | None,
    typer.Option(
        help="Equivalence margin ±, in the metric's unit [default: as declared, else none].",
    ),
]
MinEffect = Annotated[
    float | None,
    typer.Option(
        help=(
            "Smallest difference to detect with 80 % power, in the metric's unit "
            "[default: the grid's compare.min_effect, if declared]."
        )
    ),
]
Anytime = Annotated[
    bool,
    typer.Option(
        "--anytime",
        help="Anytime-valid test by e-values: p stays valid however often you test.",
    ),
]
FamilyName = Annotated[
    str | None,
    typer.Option(
        help=(
            "Comparisons that share α: table or dataset (Holm), "
            "or screen (false discovery rate) [default: as declared, else table]."
        )
    ),
]
OnDivergedName = Annotated[
    str | None,
    typer.Option(
        help=(
            "Diverged runs: suppress (no test) or chance (counted at chance level) "
            "[default: as declared, else suppress]."
        )
    ),
]
CorrectionName = Annotated[
    str | None,
    typer.Option(
        help=(
            "Correction for the number of comparisons: holm, or dunnett (many heads against "
            "one baseline) [default: as declared, else holm]."
        )
    ),
]
OverDatasetsName = Annotated[
    str | None,
    typer.Option(
        help=(
            "Compare on each dataset (each), or once over all: these datasets (fixed), or "
            "datasets like these (random) [default: as declared, else each]."
        )
    ),
]

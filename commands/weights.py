"""What finished weights are for: more scores, and other programs."""

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Json,
    Selector,
    Workspace,
    fresh,
    one_run,
    open_workspace,
    select_ids,
    selection,
)


def evaluate(
    selector: Selector = None,
    sets: Annotated[
        str,
        typer.Option(
            help="Evaluation sets, comma-separated: test, train, val or others of the dataset.",
        ),
    ] = "test",
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Input side in pixels; stored as, e.g., test@256px [default: the recipe's].",
            min=4,
        ),
    ] = None,
    crop_pct: Annotated[
        float | None,
        typer.Option(
            help="Centre crop (fraction); stored as, e.g., test@crop0.9 [default: the recipe's].",
            min=0.01,
            max=1,
        ),
    ] = None,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Evaluate the final weights of completed runs."""
    from ..orchestrator.housekeeping.evaluate import evaluate as score
    from .printing import terminal

    context = open_workspace(workspace)
    fresh(context)
    run_ids = select_ids(context, selector)
    found = score(
        context,
        run_ids,
        sets.split(","),
        show=not as_json,
        image_size=image_size,
        crop_pct=crop_pct,
    )
    if as_json:
        terminal.emit_json(found)


def export(
    run: Annotated[str, typer.Argument(help="Run id, or the beginning of one.")],
    out: Annotated[Path, typer.Argument(help="Output folder; must not exist yet.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Export format: timm, safetensors or torchvision-backbone.",
        ),
    ] = "timm",
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Export a run's final weights with a model card.

    The auxiliary head is not exported.
    """
    from ..analysis.findings.cells import report as table
    from ..jobs.run.selector import Selection
    from ..orchestrator.housekeeping.export import export as write
    from .printing import terminal

    context = open_workspace(workspace)
    fresh(context)
    run_id = one_run(context, run)
    chosen = table(context.ledger, Selection(names=(run_id,)))[0]
    cell = table(context.ledger, selection([f"cell={chosen['cell_id']}"]))[0]
    write(context, run_id, out, form, cell=cell)
    if as_json:
        terminal.emit_json(
            {"schema_version": 1, "run_id": run_id, "folder": str(out.absolute()), "format": form}
        )
    else:
        terminal.say(f"{out} written")

"""What runs use and what they cost."""

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Json,
    Selector,
    Workspace,
    look_into,
    say_imported,
    selection,
    unreachable,
)
from .repeated import watched


@watched
def eff(selector: Selector = None, as_json: Json = False, workspace: Workspace = None) -> None:
    """Show what runs use of what they asked for."""
    from ..orchestrator.views.efficiency import efficiency
    from .printing import costs, terminal

    context = look_into(workspace)
    found = efficiency(context, selection(selector, default_all=True))
    if as_json:
        terminal.emit_json(found)
    else:
        costs.print_efficiency(found)


def cost(selector: Selector = None, as_json: Json = False, workspace: Workspace = None) -> None:
    """Show what cells cost: parameters, FLOPs, speed, memory and GPU-hours, beside the score.

    Parameters and FLOPs are counted on this machine, once for each model. The rest was measured
    while the runs trained.
    """
    from ..orchestrator.views.costs import costs as view
    from .printing import costs, terminal

    context = look_into(workspace)
    chosen = selection(selector, default_all=True)
    with terminal.waiting("counting parameters and FLOPs"):
        found = view(context, chosen)
    if as_json:
        terminal.emit_json(found)
    else:
        costs.print_costs(found)
        say_imported(context, chosen)


def usage(
    selector: Selector = None,
    by: Annotated[
        str,
        typer.Option(
            help="Keys to group by, with commas: user, grid, backbone, dataset, head, week, host."
        ),
    ] = "grid",
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Sum the hours of runs, by user, grid or week.

    GPU-hours are useful, or led to nothing: lost (after the last checkpoint that is kept), failed,
    or superseded by another attempt. Hours belong to the grid that a run was submitted for then.
    """
    from ..orchestrator.views.spent import spent
    from .printing import costs, terminal

    context = look_into(workspace)
    keys = [key.strip() for key in by.split(",") if key.strip()]
    found = spent(context, selection(selector, default_all=True), keys)
    if as_json:
        terminal.emit_json(found)
    else:
        costs.print_spent(found, keys)


def metrics(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to replace at once, instead of stdout."),
    ] = None,
    workspace: Workspace = None,
) -> None:
    """Print counts and hours in Prometheus' text format.

    For the textfile collector of node_exporter, from cron, with `--output` naming a .prom file. A
    scheduler that cannot be asked is one of the figures, and no error.
    """
    from ..jobs.atomic_files import write_over
    from ..orchestrator.views.metrics import as_text, families
    from .printing import terminal

    text = as_text(families(look_into(workspace)))
    unreachable.clear()
    if output is None:
        terminal.write(text, end="")
    else:
        write_over(output, text.encode())

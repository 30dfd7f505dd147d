"""Hand on what was made: a run's weights, or the curves of runs for other programs."""

import shlex
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.errors import BadInput, LedgerUnreachable, NothingMatched, suggest
from ..jobs.units import plural
from .completion import complete_runs
from .options import Json, Workspace, look_again, look_into, one_run, opened_once, selection

if TYPE_CHECKING:
    from ..analysis.output.exported_curves import Exported, Exporter, Writer
    from ..orchestrator.loop.context import Context

# Form of curves -> the module that writes it, the extra that it comes with, and how it is opened.
FORMS = {
    "tensorboard": ("tensorboard", "tensorboard", "tensorboard --logdir {out}"),
    # What writes has no server, which is many times as large.
    "mlflow": (
        *("mlflow", "mlflow"),
        "pip install mlflow && mlflow ui --backend-store-uri sqlite:///{out}/mlflow.db",
    ),
    "wandb-offline": ("wandb", "wandb", "wandb sync {out}/wandb/offline-run-*"),
    "csv": ("", "", "{out}/curves.csv"),
    "parquet": ("pyarrow", "parquet", "{out}/curves.parquet"),
}


def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Run id, or the beginning of one; with --to a grid or a condition too.",
            autocompletion=complete_runs,
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Output folder; with --to it may exist already.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Export format of weights: timm, safetensors or torchvision-backbone.",
        ),
    ] = "timm",
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help=f"Export curves instead of weights, to: {', '.join(FORMS)}.",
            autocompletion=lambda: list(FORMS),
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="With --to: go on until the runs have ended, or until Ctrl-C."
        ),
    ] = False,
    every: Annotated[
        int, typer.Option(min=1, max=3600, help="With --follow: seconds between two looks.")
    ] = 30,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Export a run's final weights with a model card, or the curves of runs.

    The auxiliary head is not exported.
    """
    if to is not None:
        _export_curves(
            run, out, to, every=every if follow else None, as_json=as_json, workspace=workspace
        )
        return
    if follow:
        raise BadInput("--follow is for curves. Add --to, or remove --follow")
    from ..analysis.findings.cells import report as table
    from ..jobs.run.selector import Selection
    from ..orchestrator.housekeeping.export import Exported
    from ..orchestrator.housekeeping.export import export as write
    from .printing import terminal

    context = look_into(workspace)
    run_id = one_run(context, run)
    chosen = table(context.ledger, Selection(names=(run_id,)))[0]
    cell = table(context.ledger, selection([f"cell={chosen.cell_id}"]))[0]
    write(context, run_id, out, form, cell=cell)
    if as_json:
        terminal.emit_json(Exported(run_id=run_id, folder=str(out.absolute()), format=form))
    else:
        terminal.say(f"{out} written")


def _export_curves(
    word: str, out: Path, to: str, *, every: int | None, as_json: bool, workspace: str | None
) -> None:
    from .printing import terminal

    _check(out, to)
    with opened_once():
        context = look_into(workspace)
        found = _write(context, word, out, to, every=every)
    if as_json:
        terminal.emit_json(found)
        return
    if not found.runs:
        raise NothingMatched("none of the selected runs has a value yet")
    written = f"{plural(len(found.runs), 'run')} and {plural(len(found.means), 'mean')}"
    terminal.say(f"{written} written. Open: {FORMS[to][2].format(out=shlex.quote(str(out)))}")


def _check(out: Path, to: str) -> None:
    if to not in FORMS:
        raise BadInput(f"--to {to}: unknown. {suggest(to, FORMS)}")
    module, extra, _ = FORMS[to]
    if module and find_spec(module) is None:
        raise BadInput(f"{module} is not installed. Run: pip install 'vtjobs[{extra}]'")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file. Give a folder (created if missing)")


def _write(context: "Context", word: str, out: Path, to: str, *, every: int | None) -> "Exported":
    from ..analysis.output.exported_curves import Exporter, title
    from .printing import terminal

    chosen = selection([word])
    # A selection of nothing leaves no folder behind.
    name = title(context.ledger, chosen)
    exporter = Exporter(context.ledger, chosen, _writer(out, to, name), follows=every is not None)
    with terminal.counting("runs") as progress:
        found = exporter.write(str(out.absolute()), progress)
    return found if every is None else _follow(context, exporter, found, every_s=every)


def _follow(
    context: "Context", exporter: "Exporter", found: "Exported", *, every_s: int
) -> "Exported":
    """Export again and again until the runs have ended."""
    from ..jobs.workspace.paths import WorkspaceUnreadable
    from .printing import terminal

    said = ""
    try:
        while found.left:
            text = f"{plural(found.left, 'run')} still to end. Stop with Ctrl-C"
            if text != said:
                terminal.say(text)
            said = text
            time.sleep(every_s)
            try:
                look_again(context)
                found = exporter.write(found.folder)
            except (LedgerUnreachable, WorkspaceUnreadable, OSError) as error:
                # A file system or a database that is away for a while comes back.
                said = ""
                terminal.say(f"error: {error}")
    except KeyboardInterrupt:
        # What was written stays, and can be opened.
        terminal.say("stopped")
    return found


def _writer(out: Path, to: str, name: str) -> "Writer":
    if to == "tensorboard":
        from ..analysis.output.tensorboard import TensorBoardWriter

        return TensorBoardWriter(out)
    if to == "mlflow":
        from ..analysis.output.mlflow import MLflowWriter

        return MLflowWriter(out, name)
    if to == "wandb-offline":
        from ..analysis.output.wandb_offline import WandbWriter

        return WandbWriter(out, name)
    from ..analysis.output.curve_table import TableWriter

    return TableWriter(out, to)

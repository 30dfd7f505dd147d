"""House-keeping: disk, data, ledger, settings, this machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..jobs.errors import BadInput, Refused, suggest
from ..jobs.units import plural
from .completion import complete_grid, complete_selection
from .json_documents import DOCUMENTS, type_of
from .options import (
    DryRun,
    Json,
    Selector,
    Workspace,
    Yes,
    ask,
    config,
    make_pass,
    open_workspace,
    select_ids,
)


def gc(
    selector: Selector = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Delete checkpoint data that completed runs no longer need.

    Final weights are kept. With `all`, decoded images that no run has used for a week go as well; a
    run that needs them decodes them again. What would be deleted is listed first.
    """
    from ..jobs.units import format_bytes
    from ..orchestrator.housekeeping import gc as collector
    from ..orchestrator.requests import deletion
    from .printing import terminal

    context = open_workspace(workspace)
    make_pass(context, start=False)
    deletion.finish(context)
    garbage = collector.find(context, select_ids(context, selector))
    if selector == ["all"]:
        garbage += collector.find_decoded(context)
    total = sum(item.bytes for item in garbage)
    if as_json:
        removed = yes and not dry_run
        terminal.emit_json(collector.GarbageList(bytes=total, removed=removed, items=garbage))
    else:
        rows = [
            [item.run_id[:8], item.why, format_bytes(item.bytes), item.path] for item in garbage
        ]
        terminal.print_table(["RUN", "WHAT", "SIZE", "PATH"], rows, right=(2,))
    if dry_run or not garbage:
        terminal.say(f"{format_bytes(total)} could be freed" if garbage else "nothing to free")
        return
    ask(f"free {format_bytes(total)}", yes=yes)
    terminal.say(f"{format_bytes(collector.remove(garbage))} freed")


def delete(
    grids: Annotated[
        list[str],
        typer.Argument(
            metavar="GRID...", help="Grids by name or id.", autocompletion=complete_selection
        ),
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Delete grids with all results, weights and logs. It cannot be undone.

    Runs that another grid has too are kept. A grid with runs that have not ended is refused: cancel
    it first. To hide a grid, archive it.
    """
    from ..jobs.units import format_bytes
    from ..orchestrator.requests import deletion
    from .printing import terminal

    context = open_workspace(workspace)
    make_pass(context, start=False)
    if gone := deletion.finish(context):
        terminal.say(f"finished a deletion that had been interrupted: {', '.join(gone)} is gone")
    with terminal.counting("runs") as progress:
        found = deletion.find(context, grids, progress)
    size = f"{plural(len(found.runs), 'run')}, {format_bytes(found.bytes)}"
    text = f"{', '.join(found.grids)}: {size}"
    kept = f"; {plural(found.kept, 'run')} that other grids have too are kept" if found.kept else ""
    if dry_run:
        terminal.say(f"this would delete {text}{kept}")
    else:
        ask(f"delete {text}{kept}", yes=yes)
        with terminal.counting("runs") as progress:
            found = deletion.delete(context, found, progress)
        terminal.say(f"deleted {text}{kept}")
    if as_json:
        terminal.emit_json(found)


def doctor(
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Run a test job on the cluster and check what its nodes see."),
    ] = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Check this machine, the workspace, the ledger and the cluster."""
    from ..orchestrator.views.doctor import examination, examine
    from .printing import terminal

    findings = examine(config(workspace), probe=probe)
    if as_json:
        terminal.emit_json(examination(findings))
    else:
        for item in findings:
            terminal.write(f"{'ok ' if item.ok else 'BAD'}  {item.name:14} {item.text}")
            if item.fix:
                terminal.write(f"     {'':14} {item.fix}")
    if not all(item.ok for item in findings):
        raise typer.Exit(1)


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="Command whose `--json` output is described [default: the grid file].",
            autocompletion=lambda: ["grid", *DOCUMENTS],
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of grid files, or of what a command prints with --json."""
    from .printing.terminal import emit_json

    document = " ".join(command or ["grid"])
    if document == "grid":
        from ..jobs.grid.schema import Grid

        emit_json(Grid.model_json_schema())
        return
    if document not in DOCUMENTS:
        known = ["grid", *DOCUMENTS]
        raise BadInput(f"{document}: no such document. {suggest(document, known)}")
    from ..jobs.document_schema import schema_of

    emit_json(schema_of(type_of(document)))


def init(
    path: Annotated[Path, typer.Argument(help="File to write; must not exist yet.")] = Path(
        "grid.yaml"
    ),
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="GRID",
            help="Ready grid to copy; `vtjobs catalog` lists them.",
            autocompletion=complete_grid,
        ),
    ] = "quickstart",
) -> None:
    """Write a grid file to start from.

    A grid that trains on this machine is written for the cluster that your settings name, if they
    name one.
    """
    import shlex

    from ..jobs.atomic_files import write_new
    from ..jobs.config.backends import elsewhere
    from ..jobs.grid.catalogue import grid_source
    from .printing.terminal import say

    backend = str(config(None).get("backend"))
    text = _for_backend(grid_source(source), backend)
    name = "my-grid" if source == "quickstart" else f"my-{source}"
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent}: no such folder")
    if path.is_dir():
        raise BadInput(f"{path}: is a folder, expected the name of a new file")
    if not write_new(path, text.replace(f"name: {source}".encode(), f"name: {name}".encode(), 1)):
        raise BadInput(f"{path} exists already. Name another file, or remove it")
    say(f"{path} written. Edit it, then check it with: vtjobs plan {shlex.quote(str(path))}")
    if backend != "local":
        say(f"Its runs go to {backend}, as your settings say; each asks for what `resources` has.")
    elif asked := _gpus_missing(text):
        say(
            f"It asks for {plural(asked, 'GPU')} a node, and this machine has none. Set backend: "
            f"{elsewhere()} in it for a cluster, or resources: {{gpus_per_node: 0}} to train here."
        )


def _for_backend(text: bytes, backend: str) -> bytes:
    """Return a ready grid with nothing in it that keeps it from a cluster."""
    if backend == "local":
        return text
    # What a grid says comes before the settings: these lines are for a machine without a cluster.
    return text.replace(b"backend: local\n", b"").replace(b"gpus_per_node: 0", b"gpus_per_node: 1")


def _gpus_missing(text: bytes) -> int:
    """Return the GPUs that a grid asks for on each node where this machine has none."""
    import yaml

    from ..jobs.config.host import visible_gpus

    asked = yaml.safe_load(text).get("resources", {}).get("gpus_per_node", 0)
    return 0 if visible_gpus() else int(asked)


Names = Annotated[
    list[str], typer.Argument(help="Datasets, paths of image folders, or weights:MODEL.")
]


Archives = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="A folder with a dataset's archives, where vtjobs cannot download it.",
    ),
]


Pack = Annotated[
    bool,
    typer.Option("--pack", help="Copy the images into a few large files; runs then read these."),
]


def data_prepare(names: Names, source: Archives = None, pack: Pack = False) -> None:
    """Download and verify datasets, image folders and weights.

    Each name is a dataset (see `vtjobs data list`), the path of an image folder (with a slash in
    it), or weights:MODEL for timm's pretrained weights. Where a dataset can only be had from its
    makers, --from unpacks their archives, checks them and puts them where vtjobs looks for them.

    --pack helps where a shared file system is slow with many small files, or limits their number.
    """
    archives = [] if source is None else ["--from", str(source)]
    _data(names, *archives, *(["--pack"] if pack else []))


def data_verify(names: Names) -> None:
    """Verify datasets and image folders without downloading them."""
    _data(names, "--verify")


def _data(names: list[str], *options: str) -> None:
    import subprocess

    from ..jobs.config.interpreter import module_command

    command = module_command("vtjobs.workers.tools.prepare", "--data", str(config(None).data_root))
    process = subprocess.Popen([*command, *options, "--", *names])
    try:
        code = process.wait()
    except KeyboardInterrupt:
        # The terminal interrupts it as well: it removes what it has downloaded in part.
        process.wait()
        raise
    if code:
        raise typer.Exit(code)


def data_list(as_json: Json = False) -> None:
    """List the known datasets, and which of them are in the data folder."""
    from ..jobs.grid.catalogue import datasets
    from ..jobs.grid.dataset_files import whereabouts
    from .printing import terminal

    root = config(None).data_root
    places = {name: whereabouts(name, root) for name in datasets()}
    if as_json:
        terminal.emit_json({name: f | {"here": places[name]} for name, f in datasets().items()})
        return
    rows = [
        [name, places[name], str(f["train"]), str(f["test"]), str(f["classes"]), f["title"]]
        for name, f in datasets().items()
    ]
    heading = ["DATASET", "HERE", "TRAIN", "TEST", "CLASSES", "WHAT"]
    terminal.print_table(heading, rows, right=(2, 3, 4))


def ledger_upgrade(workspace: Workspace = None) -> None:
    """Bring the ledger's schema up to date."""
    from ..orchestrator.housekeeping.ledger_upkeep import upgrade_ledger
    from .printing.terminal import write

    write(upgrade_ledger(config(workspace)))


def ledger_rebuild(yes: Yes = False, workspace: Workspace = None) -> None:
    """Rebuild the ledger from the workspace.

    The old ledger is kept: a SQLite file is renamed, PostgreSQL rows are copied to a SQLite file.
    """
    from ..orchestrator.housekeeping.ledger_upkeep import rebuild_ledger
    from .printing.terminal import say, write

    if not yes and not (
        sys.stdin.isatty() and typer.confirm("Move the ledger aside and rebuild it?", err=True)
    ):
        raise Refused("this would rebuild the ledger. Repeat with --yes to confirm")
    done = rebuild_ledger(config(workspace), progress=lambda what, count: say(f"{count} {what}"))
    if done.kept is not None:
        say(f"the old ledger is kept in {done.kept}")
    write(", ".join(f"{number} {what}" for what, number in done.found.items()))


def config_show(
    origin: Annotated[
        bool,
        typer.Option("--origin", help="Additional column with the origin of each value."),
    ] = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Print the effective settings."""
    from ..orchestrator.housekeeping.ledger_upkeep import shown_settings
    from .printing import terminal

    settings = shown_settings(config(workspace))
    if as_json:
        terminal.emit_json(settings)
        return
    heading = ["SETTING", "VALUE", *(["ORIGIN"] if origin else [])]
    rows = [
        [name, str(item["value"] or "-"), *([item["origin"]] if origin else [])]
        for name, item in settings.items()
    ]
    terminal.print_table(heading, rows)

"""What people write about grids and runs, and grids that are put away."""

from typing import Annotated

import typer

from ..jobs.errors import NothingMatched
from ..jobs.names import one_line
from .completion import complete_runs, complete_selection
from .options import DryRun, Json, Workspace, look_into, open_workspace


def note(
    target: Annotated[
        str,
        typer.Argument(help="Grid or run: a name or an id.", autocompletion=complete_runs),
    ],
    text: Annotated[
        str | None, typer.Argument(help="What to write [default: show the notes].")
    ] = None,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Write a note about a grid or a run, or show its notes.

    Notes are shown by show and on the pages. They change no result and no identity.
    """
    from ..orchestrator.requests.labels import noted
    from .printing import terminal

    context = look_into(workspace) if text is None else open_workspace(workspace)
    found = noted(context, target, text)
    if as_json:
        terminal.emit_json(found)
        return
    for one in found.notes:
        terminal.write(f"{one.at[:16].replace('T', ' ')}  {one.by}: {one_line(one.text)}")
    if not found.notes:
        terminal.say(f"{found.name} has no notes")


def archive(
    grids: Annotated[
        list[str],
        typer.Argument(
            metavar="GRID...", help="Grids by name or id.", autocompletion=complete_selection
        ),
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Bring them back.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Put grids away: status leaves them out, and nothing of them is removed.

    Their runs, results and files stay, and everything that names them finds them.
    """
    from ..orchestrator.requests.labels import archive as put_away
    from .printing import terminal

    found = put_away(open_workspace(workspace), grids, undo=undo, dry_run=dry_run)
    if as_json:
        terminal.emit_json(found)
    elif found.grids:
        terminal.write("\n".join(found.grids))
    if not found.grids:
        raise NothingMatched(f"nothing to {'bring back' if undo else 'put away'}")

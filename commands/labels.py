"""What people write about grids and runs, and grids that are put away."""

from typing import Annotated

import typer

from ..jobs.errors import NothingMatched
from ..jobs.names import one_line
from .completion import complete_runs, complete_selection, complete_tag
from .options import (
    DryRun,
    Json,
    Selector,
    Workspace,
    look_into,
    open_workspace,
    selection,
)


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


def tag(
    selector: Selector = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="TAG", help="Tag to put on; may be given several times."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove",
            metavar="TAG",
            help="Tag to take off; may be given several times.",
            autocompletion=complete_tag,
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Put tags on grids or runs, to select by: tag=paper.

    A grid's tag selects all its runs. Without options it shows the tags of what is selected, or all
    tags. They change no result and no identity.
    """
    from ..orchestrator.requests.labels import all_tagged
    from ..orchestrator.requests.labels import tag as put
    from .printing import terminal

    changes = bool(add or remove)
    context = open_workspace(workspace) if changes else look_into(workspace)
    if selector or changes:
        chosen = selection(selector)
        found = put(context, chosen, add=add or (), remove=remove or (), dry_run=dry_run)
    else:
        found = all_tagged(context)
    if as_json:
        terminal.emit_json(found)
        return
    for one in found:
        terminal.write(f"{one.target}  {', '.join(one.tags) or '-'}")
    if not found:
        terminal.say("no tags yet: --add puts one on what is selected")


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

"""Serve the pages."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.errors import BadInput
from .options import Selector, Workspace, look_into

if TYPE_CHECKING:
    from ..jobs.run.selector import Selection
    from ..orchestrator.loop.context import Context
    from ..web.server.serve import Listening


def ui(
    selector: Selector = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port; 0: any free port [default: 8642, or the next free one].",
        ),
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(help="Unix socket to listen on, instead of a port.")
    ] = None,
    root_path: Annotated[
        str, typer.Option("--root-path", help="Path that a proxy serves the pages below.")
    ] = "",
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="Name by which a proxy is asked for the pages (repeatable)."
        ),
    ] = None,
    every: Annotated[int, typer.Option(min=1, max=3600, help="Seconds between two looks.")] = 5,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Pages without buttons that change something.")
    ] = False,
    workspace: Workspace = None,
) -> None:
    """Serve live pages of grids, cells, runs and failures to a browser.

    Whoever has the printed address sees them, and nobody else. Watching starts nothing: retry,
    cancel, hold and release ask first, and are offered to the workspace's owner alone.
    """
    from ..jobs.run.selector import parse_selection

    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise BadInput(
            "starlette and uvicorn are not installed. Run: pip install 'vtjobs[ui]'"
        ) from None
    from ..web.server.serve import Place, serve

    context = look_into(workspace)
    chosen = parse_selection(selector or [], default_all=True)
    if selector:
        _check(context, chosen)
    serve(
        context,
        chosen,
        Place(host=host, port=port, path=socket, root=root_path, names=name or []),
        every_s=every,
        acts=context.is_owner and not read_only,
        tell=_tell,
    )


def _check(context: "Context", chosen: "Selection") -> None:
    """Refuse a selection that means nothing, instead of showing pages without runs."""
    from ..db import queries
    from ..db.engine import reading

    with reading(context.ledger.engine) as connection:
        queries.list_runs(connection, chosen, limit=1)


def _tell(found: "Listening") -> None:
    from .printing import terminal

    terminal.write(found.url, flush=True)
    if found.ssh:
        terminal.say(f"from another machine, first: {found.ssh}")
    if found.is_open:
        terminal.say(
            "other machines can reach this address, and it is not encrypted: whoever reads along"
            " on the network has the token"
        )
    terminal.say("Ctrl-C ends it; the runs go on")

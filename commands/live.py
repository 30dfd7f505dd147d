"""Watch everything on one screen."""

from typing import Annotated

import typer

from ..jobs.errors import BadInput
from .options import Selector, Workspace, look_into


def top(
    selector: Selector = None,
    every: Annotated[int, typer.Option(min=1, max=3600, help="Seconds between two looks.")] = 5,
    workspace: Workspace = None,
) -> None:
    """Watch cells, curves, runs, logs and failures on one screen.

    It starts nothing by itself. It shows means and deviations, and no test: `vtjobs compare` makes
    tests.
    """
    from .printing.screen import fills_screen

    if not fills_screen():
        raise BadInput("top needs a terminal that it can fill. status, runs and report need none")
    try:
        from .top.app import Top
    except ImportError:
        raise BadInput("textual is not installed. Run: pip install 'vtjobs[top]'") from None
    from .top.reader import Reader

    context = look_into(workspace)
    reader = Reader(context, selector or [])
    reader.check(reader.words)
    Top(reader, every).run()

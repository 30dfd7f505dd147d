"""Who is told of what happens, and whether it reaches them."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.errors import BadInput, VtjobsError
from ..jobs.units import format_duration, plural
from .options import Json, Workspace, config

if TYPE_CHECKING:
    from ..orchestrator.notices.standing import AddressStanding


def notify(
    test: Annotated[
        bool, typer.Option("--test", help="Send a test message to each address, and wait for it.")
    ] = False,
    send: Annotated[
        bool, typer.Option("--send", help="Send now what waits, and wait for it.")
    ] = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Show who is told of ended grids and failed runs, and what could not be sent.

    `notify:` in vtjobs.yaml names the addresses.
    """
    import os
    import time

    from ..jobs.config.notices import notice_settings
    from ..orchestrator.notices import standing
    from ..orchestrator.notices.outbox import Outbox
    from ..orchestrator.notices.send import send as send_all
    from .printing import terminal

    settings_of = config(workspace)
    settings = notice_settings(settings_of.get("notify"))
    if not settings.addresses:
        raise BadInput(
            "nobody is to be told. Set notify: {to: [file:~/.config/vtjobs/notify]} in vtjobs.yaml,"
            " with a URL of apprise in that file, such as ntfy://ntfy.sh/my-topic"
        )
    settings_of.workspace.check()
    outbox = Outbox(settings_of.workspace)
    if test:
        found = standing.tested(outbox, settings, environ=os.environ, now=time.time())
    else:
        if send:
            send_all(outbox, settings, environ=os.environ, now=time.time(), only_due=False)
        found = standing.of_addresses(outbox, settings)
    if as_json:
        terminal.emit_json(found)
    else:
        rows = [_row(one, time.time()) for one in found]
        terminal.print_table(["ADDRESS", "WAITING", "LAST TRIED", "OUTCOME"], rows, right=(1,))
    failed = sum(bool(one.error) for one in found)
    if (test or send) and failed:
        raise VtjobsError(f"{plural(failed, 'address')} could not be reached")


def _row(one: "AddressStanding", now: float) -> list[str]:
    ago = (
        "never" if one.tried_at is None else f"{format_duration(max(0.0, now - one.tried_at))} ago"
    )
    outcome = "" if one.tried_at is None else one.error or "sent"
    return [one.address, str(one.waiting), ago, outcome]

"""Listen, say where, and answer until somebody ends it."""

import os
import secrets
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ...jobs.errors import BadInput
from ...jobs.run.selector import Selection
from ...jobs.values import Value
from ...orchestrator.loop.context import Context
from ..render import Frame
from .access import access, is_loopback
from .pages import Pages

if TYPE_CHECKING:
    import uvicorn

# Where a token comes from that outlives the server, instead of one drawn at each start.
TOKEN_VARIABLE = "VTJOBS_UI_TOKEN"
# A shorter one could be guessed.
LEAST_TOKEN = 16
# The port that is tried first; the next free one is taken.
PORT = 8642
_TRIES = 50


class Listening(Value, frozen=True, kw_only=True):
    """How to reach the server, for whoever started it."""

    url: str
    """With the token."""
    ssh: str
    """A command for another machine, after which the address works there too; or nothing."""
    is_open: bool
    """Whether other machines reach it, without encryption."""


class Place(Value, frozen=True, kw_only=True):
    """Where to listen, and what to be called."""

    host: str
    port: int | None
    """0: any free one; None: `PORT` or the next free one."""
    path: Path | None
    """Of a Unix socket, instead of a port."""
    root: str
    """Path that a proxy serves the pages below, such as `/node/n1/8642`."""
    names: Collection[str]
    """Names that a proxy is asked for."""


class Opened(Value, frozen=True, kw_only=True):
    """A server that listens, and does not answer yet."""

    server: "uvicorn.Server"
    listener: socket.socket
    told: Listening

    def run(self) -> None:
        """Answer until SIGINT or SIGTERM, or until `server.should_exit` is set."""
        try:
            self.server.run(sockets=[self.listener])
        finally:
            self.listener.close()


def serve(
    context: Context,
    selection: Selection,
    place: Place,
    *,
    every_s: float,
    acts: bool,
    tell: Callable[[Listening], None],
) -> None:
    """Serve the pages until SIGINT or SIGTERM.

    Args:
        context: workspace and ledger.
        selection: the runs that pages are about.
        place: where to listen.
        every_s: seconds between two looks, while somebody has a page open.
        acts: whether pages may retry, cancel, hold and release.
        tell: is told how to reach the server as soon as it listens.

    Raises:
        BadInput: it cannot listen there, or the token is too short.
    """
    opened = open_server(context, selection, place, every_s=every_s, acts=acts)
    tell(opened.told)
    try:
        opened.run()
    finally:
        if place.path:
            place.path.unlink(missing_ok=True)


def open_server(
    context: Context, selection: Selection, place: Place, *, every_s: float, acts: bool
) -> Opened:
    """Listen; see `serve`."""
    import uvicorn

    from .app import Settings, make

    token = token_from(os.environ.get(TOKEN_VARIABLE))
    root = f"/{place.root.strip('/')}/" if place.root.strip("/") else "/"
    listener = _listen_at(place.path) if place.path else _listen(place.host, place.port)
    frame = Frame(
        workspace=str(context.workspace.root),
        as_of="",
        where=context.where,
        names=selection.names,
        narrowed=tuple(condition.word for condition in selection.conditions),
        root=root,
        live=True,
        acts=acts,
    )
    settings = Settings(
        access=access(token, place.host, place.names), root=root, every_s=every_s, acts=acts
    )
    pages = Pages(context, selection, frame)
    # Whoever comes first waits for no look.
    pages.look()
    app, feed = make(pages, settings)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # An open page listens without end: it is let go of before its connection is waited for.
            await feed.close()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    told = _listening(listener, place, f"{root}?token={token}")
    return Opened(server=Server(config), listener=listener, told=told)


def token_from(given: str | None) -> str:
    """Return the token that was given, or a new one.

    Raises:
        BadInput: it can be guessed, or has signs that an address cannot have.
    """
    if not given:
        return secrets.token_urlsafe(24)
    if len(given) < LEAST_TOKEN or not given.replace("-", "").replace("_", "").isalnum():
        raise BadInput(f"{TOKEN_VARIABLE} must have at least {LEAST_TOKEN} letters, digits, - or _")
    return given


def _listen(host: str, port: int | None) -> socket.socket:
    first = PORT if port is None else port
    error: OSError | None = None
    for number in range(first, first + (_TRIES if port is None else 1)):
        try:
            return socket.create_server(
                (host, number), family=socket.AF_INET6 if ":" in host else socket.AF_INET
            )
        except OSError as found:
            error = found
    raise BadInput(f"cannot listen on {host} port {first}: {error}. Try --port 0")


def _listen_at(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    if path.is_socket():
        try:
            found.connect(str(path))
        except OSError:
            # Whoever made it has gone.
            path.unlink()
        else:
            found.close()
            raise BadInput(f"--socket {path}: somebody listens there already")
        found.close()
        found = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        found.bind(str(path))
        found.listen()
    except OSError as error:
        raise BadInput(f"--socket {path}: {error.strerror or error}") from None
    finally:
        os.umask(before)
    return found


def _listening(listener: socket.socket, place: Place, below: str) -> Listening:
    user = os.environ.get("USER", "")
    there = f"{user}@{socket.gethostname()}" if user else socket.gethostname()
    if place.path:
        return Listening(
            url=f"http://localhost:{PORT}{below}",
            ssh=f"ssh -N -L {PORT}:{place.path.absolute()} {there}",
            is_open=False,
        )
    port = listener.getsockname()[1]
    name = f"[{place.host}]" if ":" in place.host else place.host
    loop = is_loopback(place.host)
    return Listening(
        url=f"http://{name}:{port}{below}",
        ssh=f"ssh -N -L {port}:{name}:{port} {there}" if loop else "",
        is_open=not loop,
    )

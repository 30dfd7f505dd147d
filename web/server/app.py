"""The pages over HTTP."""

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...jobs.errors import VtjobsError
from ...jobs.values import Value
from ...orchestrator.requests.as_typed import as_typed
from ...orchestrator.views.logs import chunk
from ...orchestrator.views.metrics import as_text, families
from ..addresses import Address, Kind, is_log_name, parse
from ..render import extra, files
from .access import Access, is_same_origin
from .feed import Feed
from .pages import Pages

# What may be done from a page: commands that take a selection.
ACTIONS = ("retry", "cancel", "hold", "release")
# A cause may have failed tens of thousands of runs; a longer command line is none.
MOST_FORM_BYTES = 1_500_000
# Of a log, what one page shows.
LOG_BYTES = 64 * 1024

_TYPES = {".css": "text/css", ".js": "text/javascript", ".LICENSE": "text/plain"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Settings(Value, frozen=True, kw_only=True):
    """What the server was started with."""

    access: Access
    root: str
    """What addresses begin with; ends with a slash."""
    every_s: float
    acts: bool
    """Whether pages may change something."""


class Server:
    """Answers requests."""

    def __init__(self, pages: Pages, settings: Settings) -> None:
        self._pages = pages
        self._settings = settings
        self._files = files()
        self.feed = Feed(pages, settings.every_s)

    async def page(self, request: Request) -> Response:
        """Answer with a page, or with its document as JSON."""
        path = request.path_params["path"]
        is_data = path.endswith(".json")
        address = parse(path.removesuffix(".json"))
        if address is None:
            return self._missing()
        if is_data:
            data = await asyncio.to_thread(self._pages.data, address)
            return Response(data, media_type="application/json") if data else self._missing()
        made = await asyncio.to_thread(self._pages.page, address)
        if made is None:
            return self._missing()
        headers = {
            "ETag": made.tag,
            "Vary": "Accept-Encoding",
            # One that takes long to make may be older than the newest look.
            "Vtjobs-Version": str(made.version),
        }
        if request.headers.get("if-none-match") == made.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return _html(made.packed, headers={**headers, "Content-Encoding": "gzip"})
        return _html(made.content, headers=headers)

    async def static(self, request: Request) -> Response:
        """Answer with a style or a script."""
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None:
            return self._missing()
        kind = next(kind for end, kind in _TYPES.items() if name.endswith(end))
        return Response(content, media_type=kind)

    async def events(self, request: Request) -> Response:
        """Tell of each look, as long as the page is open."""
        if self.feed.is_full:
            return PlainTextResponse("too many pages are open", status_code=503)
        return StreamingResponse(self.feed.events(), media_type="text/event-stream")

    async def log(self, request: Request) -> Response:
        """Answer with a part of a log."""
        run_id, name = request.path_params["run_id"], request.path_params["name"]
        number = request.path_params["attempt"]
        address = parse(f"{Kind.RUN}/{run_id}")
        start = _start(request.query_params.get("from", ""))
        if address is None or not is_log_name(name):
            return self._missing()
        if not await asyncio.to_thread(self._pages.has_run, run_id):
            return self._missing()
        path = self._pages.context.workspace.run(run_id).logs(number) / name
        try:
            part = await asyncio.to_thread(chunk, path, start, LOG_BYTES)
        except OSError:
            return self._missing()
        here = f"{self._settings.root}logs/{run_id}/{number}/{name}"
        shown = extra(
            "log.html",
            address,
            self._pages.frame(),
            part=part,
            name=name,
            number=number,
            here=here,
            before=max(0, part.start - LOG_BYTES),
        )
        return _html(shown.encode())

    async def metrics(self, request: Request) -> Response:
        """Answer with what `vtjobs metrics` prints."""
        found = await asyncio.to_thread(lambda: as_text(families(self._pages.context)))
        return PlainTextResponse(found, media_type="text/plain; version=0.0.4")

    async def ask(self, request: Request) -> Response:
        """Show what an action would do, and ask for it."""
        wanted = await self._form(request)
        if isinstance(wanted, Response):
            return wanted
        code, said = await asyncio.to_thread(
            as_typed, self._pages.context, wanted.action, [*wanted.words, "--dry-run"]
        )
        return self._answer(wanted, said, asks=code == 0)

    async def act(self, request: Request) -> Response:
        """Do what was asked for."""
        wanted = await self._form(request)
        if isinstance(wanted, Response):
            return wanted
        _, said = await asyncio.to_thread(
            as_typed, self._pages.context, wanted.action, [*wanted.words, "--yes"]
        )
        await asyncio.to_thread(self._pages.forget)
        await asyncio.to_thread(self._pages.look)
        return self._answer(wanted, said, asks=False)

    async def _form(self, request: Request) -> "Wanted | Response":
        """Return what a page of this server asks for, or why it is refused."""
        headers = request.headers
        if not self._settings.acts or not is_same_origin(
            host=headers.get("host", ""),
            origin=headers.get("origin", ""),
            site=headers.get("sec-fetch-site", ""),
        ):
            return PlainTextResponse("only a page of this server may change something", 403)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_FORM_BYTES:
                return PlainTextResponse("the form is too long", 413)
        return _wanted(parse_qs(body.decode(errors="replace"))) or self._missing()

    def _answer(self, wanted: "Wanted", said: str, *, asks: bool) -> Response:
        # Nothing renews it: what a command said stays to be read.
        shown = extra(
            "act.html", wanted.back, self._pages.frame(), wanted=wanted, out=said, asks=asks
        )
        return _html(shown.encode())

    def _missing(self) -> Response:
        return PlainTextResponse("there is no such page", status_code=404)


class Wanted(Value, frozen=True, kw_only=True):
    """An action on runs."""

    action: str
    words: list[str]
    """The runs, as on a command line."""
    back: Address
    """The page that it was asked for on."""


def _wanted(form: Mapping[str, list[str]]) -> Wanted | None:
    action, words = form.get("action", [""])[0], form.get("words", [])
    back = parse(form.get("back", [""])[0])
    # What begins with a dash would be an option.
    if action not in ACTIONS or not words or back is None or any(w.startswith("-") for w in words):
        return None
    return Wanted(action=action, words=words, back=back)


def _start(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _html(content: bytes, headers: dict[str, str] | None = None, code: int = 200) -> Response:
    return Response(content, code, headers, media_type="text/html; charset=utf-8")


class Guard:
    """Lets requests in, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is not let in; pass on the others."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                for name, value in _HEADERS.items():
                    if name.lower().encode() not in names:
                        message["headers"].append((name.encode(), value.encode()))
            await send(message)

        # Some proxies take their path off before they ask, and some do not.
        if (root := self._settings.root) != "/" and scope["path"].startswith(root):
            scope = {**scope, "path": scope["path"].removeprefix(root[:-1])}
        refused = self._refused(Request(scope))
        await (self._app if refused is None else refused)(scope, receive, guarded)

    def _refused(self, request: Request) -> Response | None:
        access, headers = self._settings.access, request.headers
        if not access.knows_host(headers.get("host", "")):
            return PlainTextResponse("this server does not go by that name", 421)
        if access.lets_in(
            cookies=headers.get("cookie", ""), authorization=headers.get("authorization", "")
        ):
            return None
        if request.method == "GET" and access.is_token(request.query_params.get("token", "")):
            return self._welcome(request)
        return PlainTextResponse(
            "open the address that was printed at the start: it has the token", 403
        )

    def _welcome(self, request: Request) -> Response:
        """Put the token into a cookie, and go on to the address without it.

        By a page, not by a redirection: after one from a mail or a chat, browsers keep back a
        strict cookie.
        """
        root = self._settings.root
        others = [(k, v) for k, v in request.query_params.multi_items() if k != "token"]
        place = root + request.scope["path"].lstrip("/")
        target = place + (f"?{urlencode(others)}" if others else "")
        answer = _html(
            b'<!doctype html><html lang="en"><title>vtjobs</title><link rel="icon" href="data:,">'
            + f'<meta http-equiv="refresh" content="0;url={_quoted(target)}">'.encode()
        )
        answer.set_cookie(
            self._settings.access.cookie,
            self._settings.access.token,
            path=root,
            httponly=True,
            samesite="strict",
        )
        return answer


def _quoted(target: str) -> str:
    from html import escape
    from urllib.parse import quote

    return escape(quote(target, safe="/?&=%:"), quote=True)


def make(pages: Pages, settings: Settings) -> tuple[ASGIApp, Feed]:
    """Return the server as an application that uvicorn runs, and what open pages listen to."""
    server = Server(pages, settings)

    async def sorry(_: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), status_code=503)

    app = Starlette(
        routes=[
            Route("/events", server.events),
            Route("/metrics", server.metrics),
            Route("/ask", server.ask, methods=["POST"]),
            Route("/act", server.act, methods=["POST"]),
            Route("/static/{name}", server.static),
            Route("/logs/{run_id}/{attempt:int}/{name}", server.log),
            Route("/{path:path}", server.page),
        ],
        exception_handlers={VtjobsError: sorry, OSError: sorry},
    )
    return Guard(app, settings), server.feed

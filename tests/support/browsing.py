"""The pages served from the test's own process, asked for over a real socket."""

import contextlib
import http.client
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vtjobs.jobs.run.selector import parse_selection
from vtjobs.web.server.serve import Place, open_server

from .lab import Lab


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True, kw_only=True)
class Site:
    url: str
    port: int
    token: str

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        token: str | None = None,
        body: str | None = None,
        **headers: str,
    ) -> Answer:
        """Ask for a path, with the token unless another one (or "") is given."""
        given = self.token if token is None else token
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if given:
            sent["Authorization"] = f"Bearer {given}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(
                status=answer.status,
                headers={name.lower(): value for name, value in answer.getheaders()},
                body=answer.read(),
            )


@contextlib.contextmanager
def served(
    lab: Lab, *, words: tuple[str, ...] = (), acts: bool = True, **place: Any
) -> Iterator[Site]:
    """Serve a lab's pages on a free port."""
    where = {"host": "127.0.0.1", "port": 0, "path": None, "root": "", "names": ()} | place
    opened = open_server(
        lab.open(),
        parse_selection(list(words), default_all=True),
        Place(**where),
        every_s=0.3,
        acts=acts,
    )
    thread = threading.Thread(target=opened.run)
    thread.start()
    try:
        parts = urlsplit(opened.told.url)
        yield Site(
            url=opened.told.url,
            port=opened.listener.getsockname()[1],
            token=parse_qs(parts.query)["token"][0],
        )
    finally:
        opened.server.should_exit = True
        thread.join(20)

"""A head that answers over HTTP as Ray's does, and says what a test wants it to say."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Head(ThreadingHTTPServer):
    """Its answers by path, and what was asked of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and token of each request."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Head

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer("POST")

    def _answer(self, method: str) -> None:
        path, token = self.path.partition("?")[0], self.headers.get("Authorization") or ""
        self.server.requests.append((method, path, token))
        found = self.server.answers.get(path)
        text = json.dumps(found).encode()
        self.send_response(401 if not token else 404 if found is None else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    """A head that lets in whoever has a token."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a-token")
    server = Head()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()

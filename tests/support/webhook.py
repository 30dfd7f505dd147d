"""A service on this machine that takes messages, as Slack and the like do."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Webhook:
    """What has arrived, and what is answered."""

    port: int = 0
    status: int = 200
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """As apprise writes it, with a secret in it."""
        return f"json://localhost:{self.port}/s3cret-t0ken"


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Serve on a free port of the loopback."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if hook.status == 200:
                hook.messages.append(json.loads(body))
            self.send_response(hook.status)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

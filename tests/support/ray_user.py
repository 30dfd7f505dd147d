"""A user of vtjobs whose runs go to a private Ray cluster, and what may lie between the two."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .cli import Cli
from .grids import slow_line
from .lab import wait_for as wait_as_long
from .ray import RayCluster
from .site import TINY, OneRun, attempts

# The nodes of a private cluster share one machine, perhaps with much else.
PATIENCE_S = 180.0


def ray_grid(
    *, seeds: str = "1", epochs: int = 1, resources: str = "", ray: str = "", extra: str = "", name: str = "tiny",
    train: str = "", slow: bool = False,
) -> str:  # fmt: skip
    """Return a grid of tiny runs; an epoch takes some hundredths of a second."""
    changes = ", ".join(
        part for part in (f"epochs: {epochs}", "warmup_epochs: 0", "batch_size: 128", train) if part
    )
    wanted = (
        resources
        if "gpus_per_node" in resources
        else ", ".join(filter(None, ["gpus_per_node: 1", resources]))
    )
    return f"""\
name: {name}
backbones:
  - vit_small_patch16_224: {TINY}
datasets: [digits]
heads: [supervised]
seeds: {seeds}
recipe: quickstart
train: {{{changes}}}
resources: {{{wanted}}}
backend: {{ray: {{{ray}}}}}
{slow_line(epochs, slow)}
{extra}
"""


def user_of(cluster: RayCluster, folder: Path, cache: Path, **env: str) -> Cli:
    """Return a user of the cluster in a folder of their own."""
    folder.mkdir(exist_ok=True)
    return Cli(folder, cache, {**cluster.env, "VTJOBS_POLL_S": "1", "OMP_NUM_THREADS": "1", **env})


def submit(user: Cli, text: str, *words: str) -> list[OneRun]:
    """Submit a grid that must be taken; return its runs."""
    user.ok("submit", user.write("grid.yaml", text), *words)
    return [OneRun(user, run["run_id"]) for run in user.json("runs", "all")]


def finish(user: Cli, run: OneRun) -> list[dict[str, object]]:
    """Go on with the grid to its end; return the run's attempts."""
    done = user("submit", "grid.yaml", "--wait", timeout=280)
    assert done.returncode == 0, done.stderr
    return attempts(run.show())


def states(user: Cli) -> dict[str, int]:
    """Return how many runs are in each state, those that nobody is in left out."""
    return {state: count for state, count in user.json("status")["runs"].items() if count}


def wait_for(until: Any) -> Any:
    """Poll until something is true; return it."""
    return wait_as_long(until, PATIENCE_S)


class Between(ThreadingHTTPServer):
    """Hands requests on to a cluster and answers back.

    A fault is a method that says what becomes of a request.
    """

    daemon_threads = True

    def __init__(self, cluster: RayCluster) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = cluster
        self.adds_token = False
        self.loses_replies_to_submissions = False
        self.lost = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Between

    def do_GET(self) -> None:
        self._hand_on("GET", None)

    def do_POST(self) -> None:
        self._hand_on("POST", self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _hand_on(self, method: str, body: bytes | None) -> None:
        headers = {
            name: self.headers[name]
            for name in ("Authorization", "Content-Type")
            if self.headers[name]
        }
        if self.server.adds_token:
            headers["Authorization"] = f"Bearer {self.server.cluster.token}"
        address = self.server.cluster.cluster.address + self.path
        request = urllib.request.Request(address, data=body or None, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        is_submission = self.path == "/api/jobs/" and b'"vtj-' in (body or b"")
        if self.server.loses_replies_to_submissions and is_submission:
            self.server.lost += 1
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def between(cluster: RayCluster) -> Iterator[Between]:
    """Serve something that lies between a user and the cluster."""
    server = Between(cluster)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def secrets_in(cluster: RayCluster) -> bool:
    """Whether what the head shows of its jobs has its token in it."""
    return cluster.token in json.dumps(cluster.jobs())

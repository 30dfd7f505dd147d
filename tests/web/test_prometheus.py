"""What a real Prometheus makes of `/metrics`, set up as the docs say."""

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.browsing import served
from ..support.lab import Lab, wait_for

pytestmark = pytest.mark.skipif(not shutil.which("prometheus"), reason="needs Prometheus")

DOCS = Path(__file__).resolve().parents[2] / "docs" / "pages.md"


def documented() -> str:
    """Return the configuration that the docs print."""
    (text,) = re.findall(r"```\n(scrape_configs:.*?)```", DOCS.read_text(), re.DOTALL)
    return str(text)


class Prometheus:
    """One that scrapes a lab's pages each second."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/api/v1/"

    def ask(self, query: str) -> list[Any]:
        """Return what a query finds, nothing while it is not up."""
        words = urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(f"{self.address}query?{words}", timeout=5) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
                return found
        except OSError:
            return []


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@pytest.fixture
def prometheus(half_done: Lab, tmp_path: Path) -> Iterator[Prometheus]:
    port = free_port()
    with served(half_done) as site:
        text = documented().replace("TOKEN", site.token).replace("8642", str(site.port))
        settings = tmp_path / "prometheus.yml"
        settings.write_text(f"global: {{scrape_interval: 1s}}\n{text}")
        command = [
            "prometheus", f"--config.file={settings}", f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                yield Prometheus(port)
            finally:
                process.terminate()


def test_it_is_up_and_counts_runs_by_state(prometheus: Prometheus) -> None:
    wait_for(lambda: prometheus.ask("up == 1"))
    found = wait_for(lambda: prometheus.ask("vtjobs_runs > 0"))
    assert {one["metric"]["state"]: one["value"][1] for one in found} == {
        "completed": "2",
        "failed": "1",
        "queued": "1",
    }

"""The scripts of deploy/ do what they say."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.cli import Cli
from .support.postgres import binaries, free_port

SCRIPTS = Path(__file__).resolve().parent.parent / "deploy" / "postgres"


@pytest.fixture
def server() -> Iterator[dict[str, str]]:
    """What `deploy/postgres/up` tells a user to set."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="vtjobs-up-"))
    folder.chmod(0o755)
    port = str(free_port())
    done = subprocess.run(
        [SCRIPTS / "up", folder / "server", port], capture_output=True, text=True, check=True
    )
    script = f"{done.stdout}\necho $VTJOBS_LEDGER; echo $PGPASSWORD"
    url, password = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    yield {"VTJOBS_LEDGER": url, "PGPASSWORD": password}
    subprocess.run([SCRIPTS / "down", folder / "server"], check=True)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_ledger_can_live_in_the_private_postgres_server(cli: Cli, server: dict[str, str]) -> None:
    cli.env |= server
    cli.ok("submit", "quickstart", "--hold")
    assert cli.json("status")["runs"]["pending"] == 18
    assert cli.json("runs", "head=drloc")[0]["shown_state"] == "held"
    assert not (cli.workspace / "ledger.sqlite").exists()

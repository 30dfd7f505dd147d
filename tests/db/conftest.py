"""Fixtures of the ledger's tests: everything here runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.ledgers import World


@pytest.fixture
def world(ledger_url: str, tmp_path: Path) -> Iterator[World]:
    """A fresh workspace with its ledger."""
    made = World(tmp_path / "runs", ledger_url)
    yield made
    made.close()

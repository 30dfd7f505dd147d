"""A user of the cluster that a worker's tests share.

What they leave running is ended after each test.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import end_processes
from ..support.cli import Cli
from ..support.ray import RayCluster
from ..support.ray_user import user_of


@pytest.fixture
def user(tmp_path: Path, cache: Path, ray: RayCluster) -> Iterator[Cli]:
    """Somebody in an empty folder, with the cluster's address and token."""
    made = user_of(ray, tmp_path / "home", cache)
    yield made
    if made.workspace.exists():
        made("cancel", "all")
    end_processes(made.workspace)

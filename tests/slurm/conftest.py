"""A user on the cluster that a worker's tests share.

Each test leaves it whole and with an empty queue.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import end_processes
from ..support.slurm import SlurmCluster
from ..support.slurm_user import SlurmUser


@pytest.fixture
def user(tmp_path: Path, cache: Path, slurm: SlurmCluster) -> Iterator[SlurmUser]:
    """Somebody in an empty folder on the login node."""
    made = SlurmUser(tmp_path, cache, cluster=slurm)
    yield made
    end_processes(made.workspace)

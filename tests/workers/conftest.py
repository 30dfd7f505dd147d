"""What the tests of the workers share."""

from collections.abc import Iterator

import pytest

from ..support.ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """A warm process that forks real ranks."""
    process = Ranks()
    yield process
    process.close()

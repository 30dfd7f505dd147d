"""Cut a list of ids to what one SQL statement may hold."""

from collections.abc import Iterable, Iterator

# SQLite's limit on variables is 32,766; PostgreSQL's is 65,535.
MOST_IDS = 5000


def in_parts(ids: Iterable[str], size: int = MOST_IDS) -> Iterator[list[str]]:
    """Yield the ids in lists of at most `size`."""
    whole = list(ids)
    for start in range(0, len(whole), size):
        yield whole[start : start + size]

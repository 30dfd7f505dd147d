"""The place of a live attempt, as its backend is asked about it."""

from typing import Any

from ..backends.base import Place


def place_of(row: Any) -> Place:
    """Return the place of a live attempt."""
    return Place(
        token=row.token,
        index=row.array_index,
        job_id=row.job_id,
        submitted_at=row.created_at,
        is_array=row.places > 1,
        is_started=row.started_at is not None,
    )

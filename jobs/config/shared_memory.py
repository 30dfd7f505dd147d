"""How many processes may make images for a rank on this node.

Those of a loader hand them over through shared memory: one that hands over more than there is dies
of SIGBUS. Containers often have 64 MiB.
"""

import shutil
from pathlib import Path

from ..run.loaders import IN_USE, PREFETCH
from ..units import format_bytes
from ..values import Value

FOLDER = Path("/dev/shm")
# The share of what is free that one allocation's ranks take among them.
SHARE = 0.8
# More processes than these make no more images.
MOST_PROCESSES = 16


class Fitted(Value, frozen=True, kw_only=True):
    """How many processes make images for a rank."""

    workers: int
    """Of its loader."""
    decoders: int
    """That decode a whole set."""
    note: str = ""
    """Why there are fewer than its cores would allow."""


def free_bytes() -> int | None:
    """Return what is free of this node's shared memory; None where it has none of its own."""
    return shutil.disk_usage(FOLDER).free if FOLDER.is_dir() else None


def fitted(
    cores: int,
    *,
    pipeline: str,
    share_bytes: int,
    free: int | None,
    ranks: int,
) -> Fitted:
    """Return how many processes a rank gets.

    Args:
        cores: of a rank.
        pipeline: `tensor` has no loader workers.
        share_bytes: of the images that a loader worker hands over at a time.
        free: bytes of shared memory; None: there is no limit.
        ranks: that share it.
    """
    most = min(MOST_PROCESSES, cores)
    workers = 0 if pipeline == "tensor" else max(1, most)
    decoders = most if most > 1 else 0
    if free is None:
        return Fitted(workers=workers, decoders=decoders)
    room = int(free * SHARE / ranks)
    fewer = min(workers, _fit(share_bytes, room))
    note = ""
    if fewer < workers:
        note = (
            f"{fewer} of {workers} loader workers: each hands over {format_bytes(share_bytes)} at a"
            f" time, and {FOLDER} has {format_bytes(free)} free for {ranks} rank(s)."
            " In a container raise --shm-size"
        )
    return Fitted(workers=fewer, decoders=decoders, note=note)


def _fit(item_bytes: int, room: int) -> int:
    """Return for how many processes the items fit that are under way at a time."""
    return max(0, (room // max(1, item_bytes) - IN_USE) // PREFETCH)

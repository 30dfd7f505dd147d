"""Errors that several sub-rooms raise and the ranks turn into a class of failure."""

import errno
import re
from pathlib import Path

from ..jobs.errors import VtjobsError

# A full, broken or read-only file system: waiting may help.
STORAGE_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS))

# What differs between two occurrences of one cause.
_NUMBERS = re.compile(r"\b[0-9a-f]{12,}\b|0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.I)
_PATHS = re.compile(r"(?:/[\w.+-]+){2,}")


def alike(text: str) -> str:
    """Return a text without numbers, ids and paths, so that two occurrences of one cause agree.

    `vtjobs failures` and the circuit breaker group failures by such texts.
    """
    return _NUMBERS.sub("#", _PATHS.sub(lambda match: f"…/{Path(match[0]).name}", text))


class BackboneError(VtjobsError):
    """timm cannot make this backbone, or it does not fit the head or the weights."""

    exit_code = 2


class OtherNumerics(VtjobsError):
    """A run was submitted by a vtjobs whose results differ from this one's."""


class WheelError(VtjobsError):
    """The installed build of torch has no kernels for this GPU."""


class DataError(VtjobsError):
    """Data cannot be used: it is damaged, or not what its fingerprint says."""


class DataMissing(DataError):
    """Data is not there: its file system may be away."""

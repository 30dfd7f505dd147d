"""Errors that several sub-rooms raise and the ranks turn into a class of failure."""

import errno

from ..jobs.errors import VtjobsError

# A full, broken or read-only file system: waiting may help.
STORAGE_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS))


class BackboneError(VtjobsError):
    """timm cannot make this backbone, or it does not fit the head or the weights."""

    exit_code = 2

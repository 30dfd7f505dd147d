"""How it stands with each address: what waits, and how the last try went."""

import time
from collections.abc import Mapping

from ...jobs.config.notices import NoticeSettings, display
from ...jobs.documents import Document
from .message import message_of
from .outbox import Notice, Outbox
from .send import error_of

SCHEMA_VERSION = 1


class AddressStanding(Document, frozen=True, kw_only=True):
    """How it stands with one address."""

    schema_version: int = SCHEMA_VERSION
    address: str
    """Of a URL, which may hold a password, its service alone."""
    waiting: int
    """Notices that have not reached it."""
    tried_at: float | None
    """When it was tried last, in seconds since 1970; null: never."""
    failures: int
    """Tries in a row that failed."""
    error: str
    """Why the last try failed, or nothing."""


def of_addresses(outbox: Outbox, settings: NoticeSettings) -> list[AddressStanding]:
    """Return how it stands with each address."""
    found = []
    for address in settings.addresses:
        last = outbox.tried(address)
        found.append(
            AddressStanding(
                address=display(address),
                waiting=len(outbox.open_notices(address)),
                tried_at=last.at if last else None,
                failures=last.failures if last else 0,
                error=last.error if last else "",
            )
        )
    return found


def tested(
    outbox: Outbox, settings: NoticeSettings, *, environ: Mapping[str, str], now: float
) -> list[AddressStanding]:
    """Send a test message to each address; the outbox stays as it is."""
    notice = Notice(
        key="test",
        kind="test",
        grid_id=outbox.folder.parent.name,
        at=now,
        text="A test: this address is told of what vtjobs.yaml names under notify: on.",
    )
    found = []
    for address in settings.addresses:
        error = error_of(address, message_of([notice]), settings, environ)
        found.append(
            AddressStanding(
                address=display(address),
                waiting=len(outbox.open_notices(address)),
                tried_at=time.time(),
                failures=int(bool(error)),
                error=error,
            )
        )
    return found

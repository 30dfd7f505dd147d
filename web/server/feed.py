"""Who has a page open is told of each look. Without anybody nothing is looked at."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from ...jobs.atomic_files import to_json
from ...jobs.documents import to_plain
from .pages import Pages, Seen

# Open pages that are told: each holds a connection.
MOST_CLIENTS = 200


class Feed:
    """One look every few seconds for all open pages together."""

    def __init__(self, pages: Pages, every_s: float) -> None:
        self._pages = pages
        self._every_s = every_s
        self._clients = 0
        self._looking: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._closed = False
        # A thread of its own: each that looks keeps the memory that its largest look took.
        self._looker = ThreadPoolExecutor(1, "look")

    @property
    def is_full(self) -> bool:
        """Whether nobody more is told."""
        return self._clients >= MOST_CLIENTS

    async def events(self) -> AsyncIterator[bytes]:
        """Yield an event for each look, beginning with the newest, as EventSource reads it."""
        self._clients += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        looking = self._looking
        try:
            yield b"retry: 3000\n\n"
            last: Seen | None = None
            # Where looking has failed, whoever listens comes back and it is tried again.
            while not self._closed and not looking.done():
                async with self._news:
                    # It is told of after it was set, so whoever has not seen it yet is woken.
                    if last is self._pages.seen and not self._closed:
                        await self._news.wait()
                if last is not self._pages.seen:
                    last = self._pages.seen
                    yield b"event: seen\ndata: " + to_json(to_plain(last)).strip() + b"\n\n"
        finally:
            self._clients -= 1

    async def _look(self) -> None:
        try:
            while self._clients and not self._closed:
                await asyncio.get_running_loop().run_in_executor(self._looker, self._pages.look)
                await self._tell()
                await asyncio.sleep(self._every_s)
        finally:
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def close(self) -> None:
        """Let go of everybody."""
        self._closed = True
        self._looker.shutdown(wait=False)
        await self._tell()

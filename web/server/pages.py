"""Pages made once for all who look, and only again when the ledger has something new."""

import contextlib
import gzip
import hashlib
import threading
import time
from collections import OrderedDict

from ...db import overview
from ...db.engine import reading
from ...jobs.atomic_files import to_json
from ...jobs.documents import Document, to_plain
from ...jobs.errors import VtjobsError
from ...jobs.run.selector import Selection
from ...jobs.units import iso
from ...jobs.values import Value, changed
from ...orchestrator.loop.context import Context
from ...orchestrator.loop.tick import look_or_say
from ...orchestrator.notices.post import post
from ...orchestrator.views.eta import Etas, etas
from ..addresses import Address, Kind
from ..documents import RunPage
from ..gather import Source, document_of
from ..render import Frame, page

# Pages that are kept: a run's is 50 kB, a large grid's a megabyte.
MOST_KEPT = 64
# Time alone changes what pages say (a run without a sign of life, a time left): so often they are
# made anew, even if the ledger has nothing new.
RENEW_S = 60.0
# What takes a second to make is made anew every ten seconds at most.
LEAST_REST = 9.0


class Seen(Document, frozen=True, kw_only=True):
    """What is told to every open page after each look."""

    version: int
    """Another number says that pages may differ from what they were."""
    as_of: str
    problems: list[str]
    """What somebody should know, each in a sentence."""


class Made(Value, frozen=True, kw_only=True):
    """A page as it is sent."""

    version: int
    """The look that it was made after."""
    tag: str
    """Of its content: the same for the same."""
    content: bytes
    packed: bytes
    """The same, by gzip."""


class _Kept(Value, frozen=True, kw_only=True):
    made: Made
    stamp: int
    """While it is the same, the page is too."""
    until: float
    """Before this it is not made anew, whatever happens."""


class Pages:
    """Reads for all requests, from whatever thread. It changes nothing."""

    def __init__(self, context: Context, selection: Selection, frame: Frame) -> None:
        self.context = context
        self._selection = selection
        self._frame = frame
        self._looking = threading.Lock()
        # One page is made once, and does not wait for another one.
        self._making: dict[str, threading.Lock] = {}
        self._marker: tuple[float, ...] = ()
        self._seen = Seen(version=0, as_of="", problems=[])
        # How often it was looked: pages about files are told apart by it.
        self._looks = 0
        self._left = Etas(grids={})
        self._left_until = 0.0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    @property
    def seen(self) -> Seen:
        """The newest look."""
        return self._seen

    def look(self) -> Seen:
        """Take in what has happened, and return what there is to tell."""
        with self._looking:
            problems = look_or_say(self.context)
            self._tell()
            try:
                marker = self._found()
                if marker != self._marker:
                    self._estimate()
            except VtjobsError as error:
                marker, problems = self._marker, [str(error)]
            version = self._seen.version + (marker != self._marker)
            self._marker = marker
            self._looks += 1
            as_of = f"{(iso(self.context.clock()) or '')[:19].replace('T', ' ')} UTC"
            self._seen = Seen(version=version, as_of=as_of, problems=problems)
            return self._seen

    def _tell(self) -> None:
        """Let be sent what somebody wants to be told: an open page may be all that looks."""
        context = self.context
        if not context.is_owner:
            return
        # What cannot be noted at this moment is noted by the next look.
        with contextlib.suppress(VtjobsError, OSError):
            post(context.config, context.ledger, now=context.clock())

    def _found(self) -> tuple[float, ...]:
        with reading(self.context.ledger.engine) as connection:
            marker = overview.marker(connection)
        return (*marker, self.context.clock() // RENEW_S)

    def _estimate(self) -> None:
        begin = time.monotonic()
        if begin < self._left_until:
            return
        self._left = etas(self.context, self._selection)
        self._left_until = _rested(begin)

    def page(self, address: Address) -> Made | None:
        """Return a page; None: there is none.

        Raises:
            VtjobsError: it cannot be read now.
        """
        with self._making.setdefault(address.path, threading.Lock()):
            version = self._seen.version
            # Logs grow without the ledger's knowing.
            stamp = self._looks if address.kind == Kind.RUN else version
            begin = time.monotonic()
            kept = self._kept.get(address.path)
            if kept is not None and (kept.stamp == stamp or begin < kept.until):
                return kept.made
            document = document_of(self._source(), address)
            if document is None:
                self._making.pop(address.path, None)
                return None
            made = _made(page(document, address, self.frame()).encode(), version)
            self._keep(address, _Kept(made=made, stamp=stamp, until=_rested(begin)))
            return made

    def _keep(self, address: Address, kept: _Kept) -> None:
        self._kept[address.path] = kept
        self._kept.move_to_end(address.path)
        while len(self._kept) > MOST_KEPT:
            path, _ = self._kept.popitem(last=False)
            self._making.pop(path, None)

    def _source(self) -> Source:
        return Source(context=self.context, selection=self._selection, left=self._left)

    def frame(self) -> Frame:
        """Return what stands around a page now."""
        as_of = iso(self.context.clock()) or ""
        return changed(self._frame, as_of=as_of, problems=self._seen.problems)

    def data(self, address: Address) -> bytes | None:
        """Return the document of a page as JSON; None: there is none."""
        document = document_of(self._source(), address)
        return None if document is None else to_json(to_plain(document))

    def has_run(self, run_id: str) -> bool:
        """Return whether a run is among those that are shown."""
        return isinstance(document_of(self._source(), Address(Kind.RUN, run_id)), RunPage)

    def forget(self) -> None:
        """Make every page anew when it is next asked for."""
        self._kept.clear()
        self._marker = ()


def _rested(begin: float) -> float:
    """Return when to do again what was begun then and is done now."""
    now = time.monotonic()
    return now + LEAST_REST * (now - begin)


def _made(content: bytes, version: int) -> Made:
    # The time of the look stands around the content, and is told by itself.
    start = content.find(b"<main")
    return Made(
        version=version,
        tag=f'"{hashlib.sha256(content[start:]).hexdigest()[:32]}"',
        content=content,
        packed=gzip.compress(content, compresslevel=5, mtime=0),
    )

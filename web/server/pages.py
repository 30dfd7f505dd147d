"""Pages made once for all who look, and only again when the ledger has something new."""

import gzip
import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

from ...db import overview
from ...db.engine import reading
from ...jobs.atomic_files import to_json
from ...jobs.documents import Document, to_plain
from ...jobs.errors import VtjobsError
from ...jobs.run.selector import Selection
from ...jobs.units import iso
from ...orchestrator.loop.context import Context
from ...orchestrator.loop.tick import look
from ..addresses import Address, Kind
from ..documents import RunPage
from ..gather import document_of
from ..render import Frame, page

# Pages that are kept: a run's is 50 kB, a large grid's a megabyte.
MOST_KEPT = 64
# Time alone changes what pages say (a run without a sign of life, a time left): so often they are
# made anew, even if the ledger has nothing new.
RENEW_S = 60.0


class Seen(Document, frozen=True, kw_only=True):
    """What is told to every open page after each look."""

    version: int
    """Another number says that pages may differ from what they were."""
    as_of: str
    problems: list[str]
    """What somebody should know, each in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A page as it is sent."""

    tag: str
    """Of its content: the same for the same."""
    content: bytes
    packed: bytes
    """The same, by gzip."""


class Pages:
    """Reads for all requests, one at a time, from whatever thread. It changes nothing."""

    def __init__(self, context: Context, selection: Selection, frame: Frame) -> None:
        self.context = context
        self.selection = selection
        self._frame = frame
        self._lock = threading.Lock()
        self._marker: tuple[float, ...] = ()
        self._seen = Seen(version=0, as_of="", problems=[])
        # How often it was looked, by which pages about files are told apart.
        self._looks = 0
        self._kept: OrderedDict[str, tuple[int, Made]] = OrderedDict()

    @property
    def seen(self) -> Seen:
        """The newest look."""
        return self._seen

    def look(self) -> Seen:
        """Take in what has happened, and return what there is to tell."""
        with self._lock:
            problems = self._take_in()
            try:
                marker = self._found()
            except VtjobsError as error:
                marker, problems = self._marker, [str(error)]
            version = self._seen.version + (marker != self._marker)
            self._marker = marker
            self._looks += 1
            as_of = f"{(iso(self.context.clock()) or '')[:19].replace('T', ' ')} UTC"
            self._seen = Seen(version=version, as_of=as_of, problems=problems)
            return self._seen

    def _take_in(self) -> list[str]:
        try:
            found = look(self.context)
        except (VtjobsError, OSError) as error:
            return [str(error)]
        away = [f"{name} unreachable ({why.reason})" for name, why in found.unreachable.items()]
        return [*found.problems, *away]

    def _found(self) -> tuple[float, ...]:
        with reading(self.context.ledger.engine) as connection:
            marker = overview.marker(connection)
        return (*marker, self.context.clock() // RENEW_S)

    def page(self, address: Address) -> Made | None:
        """Return a page; None: there is none.

        Raises:
            VtjobsError: it cannot be read now.
        """
        with self._lock:
            # Logs grow without the ledger's knowing.
            stamp = self._looks if address.kind == Kind.RUN else self._seen.version
            kept = self._kept.get(address.path)
            if kept is not None and kept[0] == stamp:
                self._kept.move_to_end(address.path)
                return kept[1]
            document = document_of(self.context, self.selection, address)
            if document is None:
                return None
            made = self._made(page(document, address, self.frame()).encode())
            self._kept[address.path] = (stamp, made)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return made

    def frame(self) -> Frame:
        """Return what stands around a page now."""
        frame = self._frame
        return Frame(
            workspace=frame.workspace,
            as_of=iso(self.context.clock()) or "",
            problems=self._seen.problems,
            root=frame.root,
            suffix=frame.suffix,
            live=frame.live,
            acts=frame.acts,
        )

    def data(self, address: Address) -> bytes | None:
        """Return the document of a page as JSON; None: there is none."""
        with self._lock:
            document = document_of(self.context, self.selection, address)
        return None if document is None else to_json(to_plain(document))

    def has_run(self, run_id: str) -> bool:
        """Return whether a run is among those that are shown."""
        with self._lock:
            found = document_of(self.context, self.selection, Address(Kind.RUN, run_id))
        return isinstance(found, RunPage)

    def forget(self) -> None:
        """Make every page anew when it is next asked for."""
        with self._lock:
            self._kept.clear()
            self._marker = ()

    @staticmethod
    def _made(content: bytes) -> Made:
        # The time of the look stands around the content, and is told by itself.
        start = content.find(b"<main")
        return Made(
            tag=f'"{hashlib.sha256(content[start:]).hexdigest()[:32]}"',
            content=content,
            packed=gzip.compress(content, compresslevel=5, mtime=0),
        )

"""From documents to HTML: the same templates for files and for the server."""

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analysis.output.layout import said
from ..jobs.names import printable
from ..jobs.run.design import seed_text
from ..jobs.run.eta import Eta
from ..jobs.units import format_bytes, format_range
from ..jobs.values import Value
from .addresses import Address, Kind
from .documents import PageDocument, RunPage, plain_chart

if TYPE_CHECKING:
    from jinja2 import Environment

# What every page leads to.
PAGES = (
    (Kind.OVERVIEW, "Grids"),
    (Kind.ACTIVITY, "Running"),
    (Kind.FAILURES, "Failures"),
    (Kind.USAGE, "Usage"),
)

_HERE = Path(__file__).parent
_STYLE = _HERE.parent / "analysis" / "output" / "templates" / "vtjobs.css"


class Frame(Value, frozen=True, kw_only=True):
    """What stands around the content of a page, and how pages name each other."""

    workspace: str
    as_of: str
    where: str = ""
    """What a command on a page ends with, see `Context.where`."""
    names: tuple[str, ...] = ()
    """Words of the selection that the pages are about: grids and runs."""
    narrowed: tuple[str, ...] = ()
    """Its conditions: what is done from a page is done to what it shows, and to nothing else."""
    problems: Sequence[str] = ()
    """What somebody should know, each in a sentence."""
    root: str | None = None
    """What addresses begin with; None: they are relative, as in a folder of files."""
    suffix: str = ""
    """What addresses of pages end with."""
    live: bool = False
    """Whether the page renews itself."""
    acts: bool = False
    """Whether it may offer to change something."""
    report: bool = False
    """Whether there is a report beside it."""
    known: frozenset[str] | None = None
    """Paths of the pages that there are; None: the server makes any."""

    def has(self, path: str) -> bool:
        """Return whether a link may lead there."""
        return self.known is None or path in self.known


def page(document: PageDocument, address: Address, frame: Frame) -> str:
    """Return a page as HTML; whatever comes from names, logs or errors is text in it."""
    values = _values(address, frame)
    running = isinstance(document, RunPage) and document.run.state == "running"
    return _rendered(f"{address.kind}.html", {**values, "document": document, "always": running})


def extra(template: str, address: Address, frame: Frame, **values: Any) -> str:
    """Return a page that only the server has; it does not renew itself."""
    fixed = {"always": False, "live": False}
    return _rendered(template, _values(address, frame) | fixed | values)


def files() -> dict[str, bytes]:
    """Return the files that pages load, by their names: styles and scripts, all of them ours."""
    found = {path.name: path.read_bytes() for path in sorted((_HERE / "static").iterdir())}
    return found | {_STYLE.name: _STYLE.read_bytes()}


def _values(address: Address, frame: Frame) -> dict[str, Any]:
    return {
        "address": address,
        "pages": PAGES,
        "root": address.up if frame.root is None else frame.root,
        "suffix": frame.suffix,
        "live": frame.live,
        "acts": frame.acts,
        "report": frame.report,
        "there": frame.has,
        "workspace": frame.workspace,
        "as_of": _at(frame.as_of),
        "problems": frame.problems,
        "where": frame.where,
        "names": list(frame.names),
        "narrowed": list(frame.narrowed),
    }


def _rendered(template: str, values: dict[str, Any]) -> str:
    return printable(_environment().get_template(template).render(values))


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("vtjobs.web"),
        autoescape=True,
        undefined=StrictUndefined,
        # An upgrade under a running server must not mix two versions of a page.
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "at": _at,
        "left": _left,
        "plain": plain_chart,
        "pretty": _pretty,
        "useful": _useful,
        "said": said,
        "seed_text": seed_text,
        "size": format_bytes,
    }
    return environment


def _at(text: str | None) -> str:
    """Return a time of ISO 8601 for a reader: to the second, UTC."""
    return f"{text[:10]} {text[11:19]} UTC" if text else ""


def _left(eta: Eta) -> str:
    if eta.low_s is None or eta.high_s is None:
        return "time left unknown"
    return f"{format_range(eta.low_s, eta.high_s)} left"


def _useful(states: Mapping[str, int]) -> list[str]:
    """Return the actions that could change something about runs in these states."""
    waiting = ("pending", "held", "blocked")
    sense = {
        "retry": ("failed", "diverged", "cancelled"),
        "cancel": (*waiting, "queued", "running", "unknown", "suspended", "requeued"),
        "hold": ("pending",),
        # Cells are counted by what is stored, which does not know of holding.
        "release": ("held", "pending"),
    }
    return [action for action, words in sense.items() if any(states.get(word) for word in words)]


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)

"""What ranks, their processes and their template report to the agent."""

from ..jobs.documents import Document
from ..jobs.run.states import FailureClass


class RankError(Document, frozen=True, kw_only=True):
    """An exception that ended a rank."""

    failure: FailureClass
    signature: str
    """One line that tells causes apart."""
    error: str
    """The traceback, shortened."""
    rank: int
    monotonic: float
    """When, on the machine's monotonic clock: the first error of several is the cause."""
    seconds: float = 0.0
    """Since the rank started."""


class Ready(Document, frozen=True, kw_only=True, tag_field="kind", tag="ready"):
    """The template has imported what ranks need."""


class Broken(Document, frozen=True, kw_only=True, tag_field="kind", tag="broken"):
    """The template cannot import it."""

    text: str


class Forked(Document, frozen=True, kw_only=True, tag_field="kind", tag="forked"):
    """A rank was forked."""

    ticket: str
    """Of its order."""
    pid: int


class Exited(Document, frozen=True, kw_only=True, tag_field="kind", tag="exit"):
    """A rank has ended."""

    pid: int
    status: int
    """The exit code, or minus the signal."""


class Done(Document, frozen=True, kw_only=True, tag_field="kind", tag="done"):
    """A process has completed a run, and may do another one once it has let go of this one."""

    ticket: str
    """Of its order."""


class Idle(Document, frozen=True, kw_only=True, tag_field="kind", tag="idle"):
    """A process is as a new one would be, and waits for an order."""


class Begun(Document, frozen=True, kw_only=True, tag_field="kind", tag="begun"):
    """A process that was idle has taken an order."""

    ticket: str
    """Of the order."""
    cpu_s: float
    """CPU seconds that it and its children that have ended took so far."""


TemplateReport = Ready | Broken | Forked | Exited
LaneReport = Done | Idle | Begun

"""What a workspace keeps of runs that were trained elsewhere: their scores, and where they are
from.
"""

from ..documents import Document
from ..values import field

# In a stored grid's folder: the results of its runs, where these were imported.
RESULTS = "imported.json"
# In place of an allocation's name: nothing of vtjobs trained this.
IMPORTED = "imported"


class ImportedFrom(Document, frozen=True, kw_only=True, omit_defaults=False):
    """Where the runs of an imported grid are from."""

    form: str
    """Of what was read, such as csv or mlflow."""
    files: list[str]
    """That were read, as they were named."""
    into: str | None = None
    """The grid whose cells they count as seeds of; None: they have cells of their own."""


class ImportedScore(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What a run scored at one epoch on one set."""

    epoch: int
    """0: the files do not say."""
    set: str
    metrics: dict[str, float]


class ImportedRun(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The results of a run that was trained elsewhere."""

    source: str
    """File and line, or folder, that it was read from."""
    scores: list[ImportedScore] = field(default_factory=list)
    diverged: bool = False
    """Whether a score was not finite."""


ImportedRuns = dict[str, ImportedRun]
"""Id of a run -> its results."""

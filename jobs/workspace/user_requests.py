"""What users asked for of runs, as the files of a cancel or a retry tell."""

from ..values import Value
from .paths import RunFolder, marks, user_name


class Request(Value, frozen=True, kw_only=True):
    """What a user asked for of a run."""

    number: int
    """The attempt that it covers."""
    word: str
    """cancel, retry or rerun."""
    at: float
    """When, in seconds since 1970."""
    by: str
    """The user's name."""


def requests_of(run: RunFolder) -> list[Request]:
    """Return what users asked for, in the order of the attempts that it covers.

    A cancel comes before a try that was granted at the same number: only a run that has nothing
    live can be granted one.
    """
    found = []
    for folder, plain in ((run.cancels, "cancel"), (run.grants, "retry")):
        for number, clean, path in marks(folder):
            facts, word = path.stat(), "rerun" if clean else plain
            name = user_name(facts.st_uid)
            found.append(Request(number=number, word=word, at=facts.st_mtime, by=name))
    return sorted(found, key=lambda item: (item.number, item.word))

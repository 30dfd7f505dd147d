"""The exceptions of vtjobs, each with the exit code that the command line gives it."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class VtjobsError(Exception):
    """The operation failed."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake in a file that a person wrote."""

    message: str
    file: str = ""
    line: int | None = None
    key: str = ""
    """Dotted path of the key, such as `train.lr`; empty for the file as a whole."""
    fix: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file and self.line else self.file
        parts = [part for part in (where, self.key) if part]
        text = ": ".join([*parts, self.message])
        return f"{text}. {self.fix}" if self.fix else text


class BadInput(VtjobsError):
    """The input cannot be used; nothing was done."""

    exit_code = 2

    def __init__(self, problems: str | Problem | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(message=problems)
        self.problems: list[Problem] = (
            [problems] if isinstance(problems, Problem) else list(problems)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NothingMatched(VtjobsError):
    """No run matches the selection."""

    exit_code = 3


class RunsFailed(VtjobsError):
    """Some of the selected runs did not complete."""

    exit_code = 4


class SchedulerUnreachable(VtjobsError):
    """The scheduler cannot be reached: states are unknown and nothing was changed."""

    exit_code = 5


class SchedulerSlow(SchedulerUnreachable):
    """The scheduler gave no answer in time: it is slow, or it is away."""


class Unauthenticated(SchedulerUnreachable):
    """The scheduler asks for credentials that whoever asked did not give.

    It says nothing about the scheduler: somebody else, or the same person with the right token, may
    ask at once.
    """


class LedgerUnreachable(VtjobsError):
    """The ledger cannot be reached or is busy."""

    exit_code = 6


class Refused(VtjobsError):
    """This needs a confirmation: repeat with --yes."""

    exit_code = 7


class SeedsMissing(VtjobsError):
    """A goal needs seeds that nobody has submitted."""

    exit_code = 8


class DamagedFile(VtjobsError, ValueError):
    """A file of the workspace is empty, cut short, or of another program or version."""


class DamagedJournal(VtjobsError):
    """A journal has a damaged line that is not its tail; what lies before it is sound."""

    def __init__(
        self, message: str, *, events: Sequence[dict[str, Any]] = (), offset: int = 0
    ) -> None:
        super().__init__(message)
        self.events = list(events)
        # Where the damaged line begins.
        self.offset = offset


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean …?" for the known name closest to `name`, or "" where none is close.

    The one name that `name` is a whole part of comes before all that are spelled alike: `gpus` is
    meant for gpus_per_node, and not for gpu, which is another thing. A number is no slip of the
    pen: 0.1 is not meant for 0.01.
    """
    folded = {str(candidate).lower(): str(candidate) for candidate in known}
    asked = str(name).lower()
    if is_number(asked):
        return ""
    whole = [word for word in folded if _is_part(asked, word)]
    if asked not in folded and len(whole) == 1:
        return f"did you mean {folded[whole[0]]!r}?"
    match = difflib.get_close_matches(asked, folded, n=1, cutoff=0.6)
    return f"did you mean {folded[match[0]]!r}?" if match else ""


def is_number(text: str) -> bool:
    """Return whether a text is a number, however it is written."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_part(part: str, name: str) -> bool:
    """Return whether `name` begins with the word and goes on, or is a dotted path to it."""
    return bool(part) and (name.startswith(f"{part}_") or name.endswith(f".{part}"))


def one_of(known: Iterable[str], *, most: int = 12) -> str:
    """Return "a, b, …" for an error's fix, cut after `most` names."""
    names = sorted(known)
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the fix for an unknown name: the nearest known one if there is one, and the list."""
    known = list(known)
    return " ".join(filter(None, [did_you_mean(name, known), f"Allowed: {one_of(known)}"]))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean …?" as a sentence of its own, or "" if no known name is close."""
    near = nearest(name, known)
    return near[:1].upper() + near[1:]

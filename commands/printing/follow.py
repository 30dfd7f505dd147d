"""Print the logs of runs, and go on printing from attempt to attempt while they live."""

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...jobs.errors import LedgerUnreachable, NothingMatched
from ...jobs.values import Value
from ...jobs.workspace.paths import RunFolder
from ...orchestrator.loop.wait import PATIENCE_S
from ...orchestrator.views.standing import Standing
from . import terminal
from .terminal import say

# How often the logs are read, and how often (at most) ledger and scheduler are looked at.
POLL_S = 0.5
LOOK_S = 1.0

_PARTS = {".head": 0, ".previous": 1, ".log": 2}


class Wanted(Value, frozen=True, kw_only=True):
    """What is to be printed of a run."""

    run: RunFolder
    attempt: int | None
    """None: the newest that has a log and, when following, those after it."""
    rank: int | None
    """None: all ranks."""
    tail: int | None = None
    """The most lines of a log, its last ones; None: all."""
    grep: re.Pattern[str] | None = None
    """Only lines in which it is found, of all attempts."""
    mark: str = ""
    """What each line begins with."""
    where: str = ""
    """What a command that is printed ends with, see `Config.where`."""

    @property
    def short_id(self) -> str:
        return self.run.path.name[:8]


class Output:
    """What the ranks of one attempt wrote; each line is printed once."""

    def __init__(self, run: RunFolder, attempt: int, rank: int | None) -> None:
        self.attempt = attempt
        self._folder = run.logs(attempt)
        self._name = "*" if rank is None else str(rank)
        # By the file's number: the parts of a long log are renamed while it grows.
        self._read: dict[int, int] = {}

    def exists(self) -> bool:
        """Return whether there is a log, empty or not."""
        return bool(self._paths())

    def has_text(self) -> bool:
        """Return whether a log has anything in it."""
        return any(path.stat().st_size for path in self._paths())

    def new(self, *, last: bool, tail: int | None = None) -> Iterator[str]:
        """Yield the lines that are new, each marked with its rank where there are several.

        Args:
            last: whether a line without its end is yielded as well, since nothing more follows.
            tail: the most lines of each log, its last ones.
        """
        paths = self._paths()
        mark = len({_rank(path) for path in paths}) > 1
        # A long log is cut into parts, of which the last lines may be in two.
        by_rank: dict[str, deque[str]] = {}
        for path in paths:
            lines = by_rank.setdefault(_rank(path), deque(maxlen=tail))
            lines.extend(self._new_of(path, last=last))
        for rank, lines in by_rank.items():
            prefix = f"{rank}: " if mark else ""
            yield from (f"{prefix}{line}" for line in lines)

    def _paths(self) -> list[Path]:
        found = self._folder.glob(f"rank-{self._name}.log*")
        return sorted(found, key=lambda path: (_rank(path), _PARTS.get(path.suffix, len(_PARTS))))

    def _new_of(self, path: Path, *, last: bool) -> list[str]:
        try:
            with path.open("rb") as stream:
                number, size = _identity(stream.fileno())
                begun = self._read.get(number, 0)
                # A shorter file is another one, that was given the number of a removed part.
                stream.seek(begun if begun <= size else 0)
                begun = stream.tell()
                data = stream.read()
        except FileNotFoundError:
            return []
        text = data if last else data[: data.rfind(b"\n") + 1]
        self._read[number] = begun + len(text)
        return text.decode(errors="replace").splitlines()


def _rank(path: Path) -> str:
    return path.name.partition(".")[0]


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_ino, found.st_size


def print_logs(wanted: Wanted, standing: Standing) -> None:
    """Print the logs of one attempt, and say which one if there are several.

    Raises:
        NothingMatched: there is no log.
    """
    if wanted.grep is not None:
        _print_found(wanted, wanted.grep)
        return
    number = wanted.attempt or _newest_with_log(wanted)
    output = None if number is None else Output(wanted.run, number, wanted.rank)
    if output is None or not output.exists():
        raise _nothing(wanted)
    if wanted.attempt is None:
        _name_attempt(wanted, output.attempt, standing)
    for line in output.new(last=True, tail=wanted.tail):
        terminal.write(f"{wanted.mark}{line}")


def _print_found(wanted: Wanted, pattern: re.Pattern[str]) -> None:
    """Print the lines of all attempts in which a pattern is found, the newest attempt last."""
    numbers = wanted.run.attempts() if wanted.attempt is None else [wanted.attempt]
    outputs = [Output(wanted.run, number, wanted.rank) for number in numbers]
    if not any(output.exists() for output in outputs):
        raise _nothing(wanted)
    mark_attempt = len(numbers) > 1
    found: deque[str] = deque(maxlen=wanted.tail)
    for output in outputs:
        mark = f"{wanted.mark}{f'attempt {output.attempt}: ' if mark_attempt else ''}"
        for line in output.new(last=True):
            if pattern.search(line):
                found.append(f"{mark}{line}")
    for line in found:
        terminal.write(line)


Look = Callable[[], dict[str, Standing]]
"""Brings the ledger up to date and says where each run stands."""


def follow_logs(
    wanted: Sequence[Wanted], look: Look, why: Callable[[str], str] | None = None
) -> None:
    """Print runs' logs until all are settled, or until the wanted attempts are over.

    Args:
        wanted: the runs, and what of them.
        look: brings the ledger up to date and says where each run stands, by its id.
        why: returns why a run waits, in a sentence; asked once for each wait. None: no wait is
            told.

    Raises:
        NothingMatched: the wanted attempt of every run is over and left no log.
        LedgerUnreachable: the ledger stayed away.
    """
    patient = _Patient(look)
    followers = [_Follower(one, why) for one in wanted]
    without: list[NothingMatched] = []
    while followers:
        # First where the runs stand, then their logs: what is over has written all it will.
        standings = patient()
        left = []
        for one in followers:
            standing = standings.get(one.wanted.run.path.name)
            try:
                if standing is None:
                    raise NothingMatched(f"{one.wanted.short_id} was deleted")
                if not one.step(standing):
                    left.append(one)
            except NothingMatched as error:
                without.append(error)
        followers = left
        if followers:
            time.sleep(POLL_S)
    if len(without) == len(wanted):
        raise without[0]
    for missing in without:
        say(str(missing))


class _Patient:
    """Looks no more often than it should, and bears with a ledger that is away for a while."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._found: dict[str, Standing] | None = None
        self._due = self._seen_at = 0.0

    def __call__(self) -> dict[str, Standing]:
        began = time.monotonic()
        if self._found is not None and began < self._due:
            return self._found
        try:
            self._found = self._look()
            self._seen_at = began
        except LedgerUnreachable:
            if self._found is None or began - self._seen_at > PATIENCE_S:
                raise
        now = time.monotonic()
        # With many thousands of runs a look takes a while; this machine has other things to do.
        self._due = now + max(LOOK_S, now - began)
        return self._found


class _Follower:
    """Follows one run."""

    def __init__(self, wanted: Wanted, why: Callable[[str], str] | None) -> None:
        self.wanted, self.why = wanted, why
        self.output: Output | None = None
        # The newest attempt at the first look; 0: there was none. None: nobody has looked.
        self._seen: int | None = None
        # Of the first log the last lines, of what follows all.
        self._tail = wanted.tail
        # The waits that were told: the attempt before each, and whether the run was held then.
        self.told: set[tuple[int, bool]] = set()

    def step(self, standing: Standing) -> bool:
        """Print what is new; return whether nothing more will come.

        Raises:
            NothingMatched: the wanted attempt is over and left no log.
        """
        if self.output is None:
            self._begin(standing)
        self._print(standing)
        if not self._is_over(standing):
            self._tell_wait(standing)
            return False
        if self.wanted.attempt is None:
            _tell_end(self.wanted, standing)
        elif self.output is None:
            raise _nothing(self.wanted)
        return True

    def _begin(self, standing: Standing) -> None:
        numbers = self.wanted.run.attempts()
        number = self.wanted.attempt
        # Two attempts may have begun since the last look: the first of them is not passed over.
        since = [one for one in numbers if self._seen is not None and one > self._seen]
        if self._seen is None:
            self._seen = max(numbers, default=0)
        if number is not None:
            number = number if number in numbers else None
        elif since:
            number = since[0]
        elif numbers:
            newest = numbers[-1]
            number = newest if not standing.is_over(newest) else _newest_with_log(self.wanted)
        if number is None:
            return
        self.output = Output(self.wanted.run, number, self.wanted.rank)
        if self.wanted.attempt is None:
            _name_attempt(self.wanted, number, standing)

    def _print(self, standing: Standing) -> None:
        if self.output is None:
            return
        later = self._later() if self.wanted.attempt is None else []
        over = bool(later) or standing.is_over(self.output.attempt)
        self._print_new(self.output, last=over)
        for number in later:
            say(f"attempt {number} of {self.wanted.short_id}")
            self.output = Output(self.wanted.run, number, self.wanted.rank)
            self._print_new(self.output, last=number != later[-1] or standing.is_over(number))

    def _print_new(self, output: Output, *, last: bool) -> None:
        pattern = self.wanted.grep
        # The last lines are those of the ones that match.
        tail = self._tail if pattern is None else None
        lines = [
            line
            for line in output.new(last=last, tail=tail)
            if pattern is None or pattern.search(line)
        ]
        for line in lines[-self._tail :] if self._tail else lines:
            terminal.write(f"{self.wanted.mark}{line}", flush=True)
        self._tail = None

    def _later(self) -> list[int]:
        """Return the attempts that have begun since the one that is printed."""
        assert self.output is not None
        return [number for number in self.wanted.run.attempts() if number > self.output.attempt]

    def _is_over(self, standing: Standing) -> bool:
        if self.wanted.attempt is not None:
            return standing.is_over(self.wanted.attempt)
        return standing.state.is_settled

    def _tell_wait(self, standing: Standing) -> None:
        before = self.output.attempt if self.output is not None else 0
        if self.why is None or not standing.waits or (before and not standing.is_over(before)):
            return
        wait = (before, standing.is_held)
        if wait not in self.told:
            self.told.add(wait)
            reason = self.why(self.wanted.run.path.name)
            say(f"{self.wanted.short_id} waits" + (f": {reason}" if reason else ""))


def _newest_with_log(wanted: Wanted) -> int | None:
    """Return the newest attempt whose log says something, else the newest with a log."""
    outputs = [Output(wanted.run, number, wanted.rank) for number in wanted.run.attempts()]
    found = [output.attempt for output in outputs if output.exists()]
    return max(
        (output.attempt for output in outputs if output.has_text()),
        default=max(found, default=None),
    )


def _name_attempt(wanted: Wanted, attempt: int, standing: Standing) -> None:
    """Say which attempt is printed, if there were or are others."""
    numbers = sorted({*wanted.run.attempts(), *standing.attempts})
    if len(numbers) > 1:
        say(f"attempt {attempt} of {wanted.short_id} ({len(numbers)} attempts so far)")


def _tell_end(wanted: Wanted, standing: Standing) -> None:
    more = (
        ""
        if standing.state == "completed"
        else f". See: vtjobs why {wanted.short_id}{wanted.where}"
    )
    say(f"{wanted.short_id} is {standing.state}{more}")


def _nothing(wanted: Wanted) -> NothingMatched:
    rank = "" if wanted.rank is None else f"rank {wanted.rank} of "
    if wanted.attempt is None:
        return NothingMatched(
            f"{rank}{wanted.short_id} has no log. See: vtjobs why {wanted.short_id}{wanted.where}"
        )
    return NothingMatched(
        f"{rank}attempt {wanted.attempt} of {wanted.short_id} has no log."
        f" See: vtjobs show {wanted.short_id}{wanted.where}"
    )

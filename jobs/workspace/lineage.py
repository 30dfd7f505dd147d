"""Which attempts of a run count, read from the run's folder alone.

The cut, the ends, the checkpoints.

Rule of adoption: what attempt k wrote counts as long as no higher attempt has a start record; a
higher attempt's start record names the step of k that it resumes from, and only what lies up to
there counts.
"""

import re
from pathlib import Path

from ..errors import DamagedJournal
from ..run.states import AttemptState
from ..values import Value
from .events import Checkpoint, End, Epoch, Fingerprints, Start, typed
from .journal import read_all
from .paths import RunFolder

_STEP = re.compile(r"step-([0-9]+)\Z")


class AttemptRecord(Value, frozen=True, kw_only=True):
    """What an attempt's journal (node 0) says."""

    number: int
    start: Start | None
    end: End | None
    announced: tuple[int, ...]
    """Steps of the checkpoints that it journalled."""
    epochs: int
    """Epochs that it finished."""


def read_attempt(folder: RunFolder, number: int) -> AttemptRecord:
    """Read the journal of one attempt; a damaged one counts up to the damage.

    Raises:
        OSError: it is there and cannot be read, which does not mean that it says nothing.
    """
    try:
        lines = read_all(folder.journal(number, 0))
    except DamagedJournal as error:
        lines = error.events
    known = [typed(line) for line in lines]
    return AttemptRecord(
        number=number,
        start=next((event for event in reversed(known) if isinstance(event, Start)), None),
        end=next((event for event in reversed(known) if isinstance(event, End)), None),
        announced=tuple(event.step for event in known if isinstance(event, Checkpoint)),
        epochs=sum(isinstance(event, Epoch) for event in known),
    )


def origin_of(folder: RunFolder) -> Fingerprints | None:
    """Return what a run starts from, or None where it has not said so."""
    for attempt in sorted(folder.attempts()):
        try:
            lines = read_all(folder.journal(attempt, 0))
        except (OSError, DamagedJournal):
            continue
        for event in map(typed, lines):
            if isinstance(event, Fingerprints):
                return event
    return None


def completed_by(folder: RunFolder, below: int) -> int | None:
    """Return the attempt below `below` whose completion counts, or None."""
    for number in reversed([number for number in folder.attempts() if number < below]):
        record = read_attempt(folder, number)
        if record.end is not None and record.end.state == AttemptState.COMPLETED:
            return number
        if record.start is not None:
            return None
    return None


class Candidate(Value, frozen=True, kw_only=True):
    """A checkpoint that an attempt may go on from."""

    attempt: int
    step: int


def candidate_at(checkpoint: Path) -> Candidate:
    """Return which attempt saved a checkpoint, and at which step, from the name of its folder."""
    name = _STEP.match(checkpoint.name)
    assert name is not None, f"not the folder of a checkpoint: {checkpoint}"
    return Candidate(attempt=int(checkpoint.parent.parent.name), step=int(name[1]))


def candidates(folder: RunFolder, below: int) -> list[Candidate]:
    """Return the checkpoints of the lineage of attempt `below`.

    The announced ones first, each kind newest first.

    Of one that nobody lived to announce the scores before it may not have been journalled either,
    and who goes on from it never makes them again; it is better than nothing.
    """
    found: list[Candidate] = []
    silent: list[Candidate] = []
    cut: int | None = None
    wanted: int | None = None
    for number in reversed([number for number in folder.attempts() if number < below]):
        if wanted is not None and number > wanted:
            continue
        record = read_attempt(folder, number)
        names = (_STEP.match(path.name) for path in folder.checkpoints(number).glob("step-*"))
        on_disk = {int(name[1]) for name in names if name}
        if record.start is None:
            # Never started, or its journal is damaged from the first line on: then what it saved is
            # all it says.
            silent += [
                Candidate(attempt=number, step=step) for step in sorted(on_disk, reverse=True)
            ]
            continue
        for step in sorted(on_disk | set(record.announced), reverse=True):
            if cut is None or step <= cut:
                kind = found if step in record.announced else silent
                kind.append(Candidate(attempt=number, step=step))
        wanted, cut = record.start.resumed_attempt, record.start.resumed_step
        if wanted is None:
            break
    return found + silent

"""Asks schedulers about running work: in turns, several at a time, each as long as it may take."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...db import scheduler_notes
from ...jobs.errors import SchedulerUnreachable
from ..backends.base import Backend, JobView, Key, Place
from .context import Context, part_name
from .places import place_of

# How long a pass waits at least for a scheduler's answer: what it does hangs on it.
ACT_S = 15.0
# Schedulers that are asked at a time.
MOST_AT_ONCE = 8


@dataclass(slots=True)
class Seen:
    """What schedulers said."""

    views: dict[Key, JobView] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    """Backends whose turn to be asked it was."""
    silent: set[str] = field(default_factory=set)
    """Parts of backends that gave no answer."""


def observe(context: Context, live: list[Any], *, acts: bool) -> Seen:
    """Ask each backend once about all its places, at most as often as it may be asked.

    Args:
        context: ledger and backends.
        live: the live attempts.
        acts: whether what is done next hangs on the answers.
    """
    places: dict[str, dict[Key, Place]] = defaultdict(dict)
    for row in live:
        place = place_of(row)
        known = places[row.backend].get(place.key)
        if known is None or place.is_started:
            places[row.backend][place.key] = place
    seen = Seen()
    backends: dict[str, Backend] = {}
    asked: dict[str, Callable[[], dict[Key, JobView]]] = {}
    patient: list[Backend] = []
    for name, mine in places.items():
        backend = context.backend(name)
        for cluster, some in backend.by_cluster(list(mine.values())).items():
            part = part_name(name, cluster)
            if not _has_turn(context, part, every_s=backend.poll_s, acts=acts):
                continue
            seen.asked.add(name)
            backends[part] = backend
            asked[part] = partial(backend.observe, some)
            if acts or scheduler_notes.is_overdue(context.ledger, part):
                patient.append(backend)
    with _waiting_longer(patient):
        answers = _at_once(asked)
    for part, answer in answers.items():
        if isinstance(answer, SchedulerUnreachable):
            scheduler_notes.note_away(context.ledger, part, answer)
            seen.silent.add(part)
        else:
            seen.views |= answer
            every_s = backends[part].poll_s
            scheduler_notes.note_answer(context.ledger, part, every_s=every_s)
    return seen


def _has_turn(context: Context, part: str, *, every_s: float, acts: bool) -> bool:
    if acts:
        return scheduler_notes.may_wait(context.ledger, part, every_s=every_s)
    return scheduler_notes.may_ask(context.ledger, part, "asked", every_s=every_s)


@contextmanager
def _waiting_longer(backends: list[Backend]) -> Iterator[None]:
    """Have these wait for an answer as long as a pass may."""
    usual = [(backend, backend.look_s) for backend in backends]
    for backend, look_s in usual:
        backend.look_s = max(look_s, ACT_S)
    try:
        yield
    finally:
        # The first that was remembered is from before.
        for backend, look_s in reversed(usual):
            backend.look_s = look_s


Answer = dict[Key, JobView] | SchedulerUnreachable


def _at_once(asked: Mapping[str, Callable[[], dict[Key, JobView]]]) -> dict[str, Answer]:
    """Ask all of them, so that nobody waits for the deadline of another one."""

    def answer(question: Callable[[], dict[Key, JobView]]) -> Answer:
        try:
            return question()
        except SchedulerUnreachable as error:
            return error

    if len(asked) < 2:
        return {part: answer(question) for part, question in asked.items()}
    with ThreadPoolExecutor(max_workers=MOST_AT_ONCE) as pool:
        return dict(zip(asked, pool.map(answer, asked.values()), strict=True))


def parts_of(context: Context, live: list[Any]) -> set[str]:
    """Return what live attempts are with, where a scheduler is away."""
    if not scheduler_notes.away(context.ledger):
        return set()
    places: dict[str, list[Place]] = defaultdict(list)
    for row in live:
        places[row.backend].append(place_of(row))
    return {
        part_name(name, cluster)
        for name, mine in places.items()
        for cluster in context.backend(name).by_cluster(mine)
    }


def forget_away(context: Context, needed: set[str]) -> None:
    """Drop what is noted of schedulers that nothing hangs on any more.

    Nobody would ask them again.
    """
    for name in scheduler_notes.away(context.ledger).keys() - needed:
        scheduler_notes.forget_away(context.ledger, name)

"""When unfinished runs will have ended: a schedule of what is left, once fast and once slow.

Values in, values out: what is left, what runs of its cells take, how many run at a time, the time.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..documents import Document
from ..values import Value, field
from .pace import Basis, History, Pace, Seen, once

# What no record of a run shows: steps since the last one, the last evaluation, the end.
MOMENT_S = 3.0


class Eta(Document, frozen=True, kw_only=True, omit_defaults=False):
    """When runs will have ended, as a range."""

    low_s: float | None
    """Seconds from now until the last of those runs has ended of which something is known; null:
    nothing is known of any.
    """
    high_s: float | None
    """The other end of the range; null: nothing is known of some."""
    basis: Basis
    """The weakest that it rests on: earlier runs of the same `cell`, of the same backbone and
    dataset (`backbone_dataset`), or `unknown`.
    """
    slots: int
    """Runs at a time that it counts with."""
    unknown: int
    """Runs of which nothing is known."""


class Waiting(Value, frozen=True, kw_only=True):
    """Runs of one cell in one grid that have not started, or wait to be tried again."""

    grid_id: str
    cell_id: str
    runs: int
    backend: str = ""
    is_selected: bool = True
    """Whether their end is asked for; the others only take slots."""
    parent_cell: str | None = None
    """The cell whose runs must complete first."""
    not_before: float = 0.0
    """When their back-off is over, in seconds since 1970."""
    left: float = 1.0
    """The share of each that is left: a retry goes on from its checkpoint."""


class Underway(Value, frozen=True, kw_only=True):
    """A run that is training."""

    run_id: str
    grid_id: str
    cell_id: str
    backend: str = ""
    is_selected: bool = True
    started_at: float
    seen_at: float
    """Its last sign of life."""
    step: int
    steps: int | None
    from_step: int = 0
    """Where its attempt began."""
    trained_s: float | None
    """Seconds from its attempt's first step to `step`."""

    @property
    def runs(self) -> int:
        """It is one run, as `Waiting` may be several."""
        return 1

    @property
    def share(self) -> float:
        """The share of the run that this attempt has trained."""
        return max(0, self.step - self.from_step) / self.steps if self.steps else 0.0

    @property
    def left(self) -> float:
        """The share of the run that is left."""
        return max(0.0, 1.0 - self.step / self.steps) if self.steps else 1.0

    @property
    def whole_s(self) -> float | None:
        """What the whole run takes at this speed, its set-up included."""
        if not self.trained_s or not self.share:
            return None
        set_up_s = max(0.0, self.seen_at - self.started_at - self.trained_s)
        return set_up_s + self.trained_s / self.share

    def left_s(self, pace: Pace | None, now: float, sign: int) -> float:
        """Return the seconds that it still takes, at one end of the range; 0 of nothing known."""
        if pace is None:
            return 0.0
        left_s, seen_at = pace.seconds * self.left, self.started_at
        if self.whole_s is not None and self.trained_s:
            # The further it has come, the more its own speed counts.
            own_s = self.trained_s / self.share * self.left
            left_s, seen_at = self.share * own_s + (1 - self.share) * left_s, self.seen_at
        left_s = left_s * pace.factor(sign) + sign * MOMENT_S
        return max(0.0, left_s - (now - seen_at))


class Left(Value, frozen=True, kw_only=True):
    """All that is left to do in a workspace."""

    underway: Sequence[Underway]
    waiting: Sequence[Waiting]
    """In the order in which they start."""
    openings: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Backend -> when its slots open, in seconds since 1970, where no run has started there."""

    @property
    def all(self) -> list[Underway | Waiting]:
        """What runs and what waits."""
        return [*self.underway, *self.waiting]

    @property
    def cell_ids(self) -> set[str]:
        """The cells of all of it."""
        return {one.cell_id for one in self.all}

    def of(self, backend: str) -> "Left":
        """Return what one backend has to do."""
        return Left(
            underway=[run for run in self.underway if run.backend == backend],
            waiting=[group for group in self.waiting if group.backend == backend],
            openings={backend: self.openings.get(backend, ())},
        )


def estimate(left: Left, history: History, now: float) -> dict[str, Eta]:
    """Return grid -> when its selected runs will have ended, for grids that have any left."""
    paces = history.paces(left.cell_ids)
    found: dict[str, Eta] = {}
    for backend in sorted({one.backend for one in left.all}):
        found |= _Schedule(left.of(backend), paces, now).etas()
    return found


def together(etas: Sequence[Eta]) -> Eta | None:
    """Return when the runs of several grids will have ended; None of none."""
    lows = [eta.low_s for eta in etas if eta.low_s is not None]
    highs = [eta.high_s for eta in etas if eta.high_s is not None]
    if not etas:
        return None
    return Eta(
        low_s=max(lows, default=None),
        high_s=max(highs) if len(highs) == len(etas) else None,
        basis=max((eta.basis for eta in etas), key=list(Basis).index),
        slots=max(eta.slots for eta in etas),
        unknown=sum(eta.unknown for eta in etas),
    )


def of_runs(underway: Iterable[Underway], history: History, now: float) -> dict[str, Eta]:
    """Return run -> when it will have ended."""
    runs = list(underway)
    paces = history.paces({run.cell_id for run in runs})
    return {run.run_id: _of_run(run, paces.get(run.cell_id), now) for run in runs}


def _of_run(run: Underway, pace: Pace | None, now: float) -> Eta:
    if pace is None:
        return Eta(low_s=None, high_s=None, basis=Basis.UNKNOWN, slots=1, unknown=1)
    low_s, high_s = (round(run.left_s(pace, now, sign), 1) for sign in (-1, 1))
    return Eta(low_s=low_s, high_s=high_s, basis=pace.basis, slots=1, unknown=0)


def with_running(seen: Mapping[str, Seen], underway: Iterable[Underway]) -> dict[str, Seen]:
    """Return what was seen of cells, and what running runs say about theirs."""
    found = dict(seen)
    for run in underway:
        if run.whole_s is not None:
            so_far = once(run.whole_s, run.share)
            before = found.get(run.cell_id)
            found[run.cell_id] = so_far if before is None else before + so_far
    return found


class _Schedule:
    """What is left on one backend, put into its slots in order."""

    def __init__(self, left: Left, paces: Mapping[str, Pace], now: float) -> None:
        self.paces, self.now, self.underway = paces, now, left.underway
        self.waiting = sorted(left.waiting, key=self._turn)
        (opening,) = left.openings.values()
        self.free = self._free([max(0.0, at - now) for at in opening])
        self.unknown: Counter[str] = Counter()
        self.bases: dict[str, set[Basis]] = {}
        for one in left.all:
            if one.is_selected:
                self._note(one)

    def _note(self, one: Underway | Waiting) -> None:
        """Note what is known of selected runs."""
        pace = self.paces.get(one.cell_id)
        if isinstance(one, Waiting) and not self.underway and not self.free:
            # When it starts is anybody's guess.
            pace = None
        self.unknown[one.grid_id] += one.runs if pace is None else 0
        basis = Basis.UNKNOWN if pace is None else pace.basis
        self.bases.setdefault(one.grid_id, set()).add(basis)

    def _turn(self, group: Waiting) -> tuple[bool, float]:
        # Who waits for a back-off or for a parent lets the others go first.
        return group.parent_cell is not None, max(self.now, group.not_before)

    def _free(self, opening: list[float]) -> list[float]:
        """Return when the slots open that no run is in, in seconds from now."""
        ready = (False, self.now)
        if any(self._turn(group) == ready for group in self.waiting):
            # Where runs train and others wait, there are no more slots, or somebody would be in.
            return [] if self.underway else opening
        backing_off = sum(group.runs for group in self.waiting if group.parent_cell is None)
        return [0.0] * backing_off

    def etas(self) -> dict[str, Eta]:
        """Return grid -> when its selected runs will have ended."""
        fast, slow = self._ends(-1), self._ends(1)
        return {
            grid_id: Eta(
                low_s=round(fast[grid_id], 1) if grid_id in fast else None,
                high_s=round(slow[grid_id], 1) if not self.unknown[grid_id] else None,
                basis=max(bases, key=list(Basis).index),
                slots=len(self.underway) + len(self.free),
                unknown=self.unknown[grid_id],
            )
            for grid_id, bases in self.bases.items()
        }

    def _ends(self, sign: int) -> dict[str, float]:
        """Return grid -> seconds until its selected runs of which something is known have ended, if
        all goes fast (-1) or slowly (1).
        """
        ends: dict[str, float] = {}
        of_cells: dict[tuple[str, str], float] = {}

        def put(one: Underway | Waiting, end: float) -> None:
            key = one.grid_id, one.cell_id
            of_cells[key] = max(end, of_cells.get(key, 0.0))
            if one.is_selected and one.cell_id in self.paces:
                ends[one.grid_id] = max(end, ends.get(one.grid_id, 0.0))

        slots = list(self.free)
        for run in self.underway:
            slots.append(run.left_s(self.paces.get(run.cell_id), self.now, sign))
            put(run, slots[-1])
        heapq.heapify(slots)
        for group in self.waiting if slots else ():
            pace = self.paces.get(group.cell_id)
            seconds = 0.0 if pace is None else pace.seconds * pace.factor(sign, group.runs)
            seconds *= group.left
            since = max(0.0, group.not_before - self.now)
            since = max(since, of_cells.get((group.grid_id, group.parent_cell or ""), 0.0))
            for _ in range(group.runs):
                end = max(slots[0], since) + seconds
                heapq.heapreplace(slots, end)
                put(group, end)
        return ends

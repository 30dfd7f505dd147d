"""A grid that is trained on paper: runs of several lengths in a few slots, some of which fail.

Deterministic: a seed gives one history, of which any moment can be looked at.
"""

import heapq
import random
from dataclasses import dataclass

from vtjobs.jobs.run.eta import Left, Underway, Waiting, with_running
from vtjobs.jobs.run.pace import CellFacts, History, Kind, Seen, once

STEPS = 1000
SAVED_EVERY = 100
BACK_OFF_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A try at a run, from its start to its end."""

    run: int
    start: float
    end: float
    set_up_s: float
    from_step: int
    last_step: int
    retry_at: float | None
    """When the run may be tried again; None: it has completed."""

    def at(self, now: float) -> tuple[int, float | None]:
        """Return its step at a moment, and how long it has trained by then."""
        trained_s = now - self.start - self.set_up_s
        if trained_s <= 0:
            return self.from_step, None
        speed = (self.last_step - self.from_step) / (self.end - self.start - self.set_up_s)
        return self.from_step + int(trained_s * speed), trained_s


class SimulatedGrid:
    """One grid, trained to its end."""

    def __init__(self, seed: int, *, has_history: bool) -> None:
        draw = random.Random(seed)
        self.slots = draw.randint(2, 8)
        self.seeds = draw.randint(3, 6)
        self.noise = draw.uniform(0.02, 0.12)
        self.failing = draw.choice((0.0, 0.03, 0.08))
        self.kinds, self.epochs, self.seconds = self._cells(draw)
        self.attempts = self._train(draw)
        self.end = max(attempt.end for attempt in self.attempts)
        # Earlier runs of the same cells, on a day when the machine was a little faster or slower.
        day = draw.uniform(0.92, 1.08)
        self.earlier = {
            f"cell{cell}": once(seconds * day) + once(seconds * day * draw.gauss(1, self.noise))
            for cell, seconds in enumerate(self.seconds)
            if has_history
        }

    def _cells(self, draw: random.Random) -> tuple[list[Kind], list[int], list[float]]:
        kinds, epochs, seconds = [], [], []
        for backbone in range(draw.randint(1, 3)):
            slow = draw.uniform(60, 1200)
            for dataset in range(draw.randint(1, 3)):
                large = draw.uniform(0.5, 2.0)
                for head in range(draw.randint(2, 4)):
                    kinds.append(Kind(f"net{backbone}", f"set{dataset}"))
                    epochs.append(100)
                    seconds.append(slow * large * (1 + 0.15 * head))
        return kinds, epochs, seconds

    def _train(self, draw: random.Random) -> list[Attempt]:
        """Start every run in its turn, and what failed again after its back-off."""
        runs = range(len(self.kinds) * self.seeds)
        waiting = [(0.0, run, 0) for run in runs]
        slots, found = [0.0] * self.slots, []
        while waiting:
            now = slots[0]
            ready = [one for one in waiting if one[0] <= now] or [min(waiting)]
            chosen = min(ready, key=lambda one: one[1])
            waiting.remove(chosen)
            not_before, run, from_step = chosen
            attempt = self._attempt(draw, run, max(now, not_before), from_step)
            found.append(attempt)
            heapq.heapreplace(slots, attempt.end)
            if attempt.retry_at is not None:
                saved = attempt.last_step // SAVED_EVERY * SAVED_EVERY
                waiting.append((attempt.retry_at, run, saved))
        return found

    def _attempt(self, draw: random.Random, run: int, start: float, from_step: int) -> Attempt:
        fails = draw.random() < self.failing
        last = draw.randint(from_step + 1, STEPS - 1) if fails else STEPS
        whole_s = self.seconds[run // self.seeds] * max(0.5, draw.gauss(1, self.noise))
        set_up_s = draw.uniform(1, 8)
        end = start + set_up_s + whole_s * (last - from_step) / STEPS
        return Attempt(
            run=run,
            start=start,
            end=end,
            set_up_s=set_up_s,
            from_step=from_step,
            last_step=last,
            retry_at=end + BACK_OFF_S if fails else None,
        )

    def left(self, now: float) -> Left:
        """Return what is left to do at a moment."""
        underway, done, tried = [], set(), {}
        for attempt in self.attempts:
            if attempt.start <= now < attempt.end:
                underway.append(self._underway(attempt, now))
                done.add(attempt.run)
            elif attempt.end <= now:
                tried[attempt.run] = attempt
                done |= {attempt.run} if attempt.retry_at is None else set()
        waiting = []
        for run in range(len(self.kinds) * self.seeds):
            if run in done:
                continue
            last = tried.get(run)
            waiting.append(
                Waiting(
                    grid_id="grid",
                    cell_id=f"cell{run // self.seeds}",
                    runs=1,
                    not_before=0.0 if last is None or last.retry_at is None else last.retry_at,
                    left=1.0 if last is None else 1 - last.last_step // SAVED_EVERY / 10,
                )
            )
        return Left(underway=underway, waiting=waiting)

    def _underway(self, attempt: Attempt, now: float) -> Underway:
        step, trained_s = attempt.at(now)
        return Underway(
            run_id=str(attempt.run),
            grid_id="grid",
            cell_id=f"cell{attempt.run // self.seeds}",
            started_at=attempt.start,
            seen_at=now,
            step=step,
            steps=STEPS,
            from_step=attempt.from_step,
            trained_s=trained_s,
        )

    def history(self, now: float) -> History:
        """Return what was seen by a moment, with what runs then."""
        cells: dict[str, Seen] = dict(self.earlier)
        for attempt in self.attempts:
            if attempt.end <= now and attempt.retry_at is None and not attempt.from_step:
                cell_id = f"cell{attempt.run // self.seeds}"
                cells[cell_id] = cells.get(cell_id, Seen()) + once(attempt.end - attempt.start)
        facts = {
            f"cell{cell}": CellFacts(kind=kind, epochs=epochs)
            for cell, (kind, epochs) in enumerate(zip(self.kinds, self.epochs, strict=True))
        }
        return History(cells=with_running(cells, self.left(now).underway), facts=facts)

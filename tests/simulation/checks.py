"""What must be true in the end.

The ledger against the workspace, and both against what really went on.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from vtjobs.jobs.errors import DamagedJournal
from vtjobs.jobs.run.retry import DETERMINISTIC
from vtjobs.jobs.workspace.journal import Line, read_from
from vtjobs.jobs.workspace.paths import RunFolder

from .agent import STEPS_PER_EPOCH, score, weights_at
from .profile import Profile
from .watch import NOTICE_S, Violation, Watch

Attempt = dict[str, Any]


class Disk:
    """One run's journals, read without the product's rules."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.events: dict[int, list[Line]] = {}
        for number in folder.attempts():
            path = folder.journal(number, 0)
            if not path.exists():
                continue
            try:
                self.events[number] = read_from(path).events
            except DamagedJournal as error:
                raise Violation(f"{path} is damaged: {error}") from None

    def one(self, number: int, kind: str) -> Line | None:
        return next((event for event in self.events.get(number, ()) if event["kind"] == kind), None)

    def highest_started(self) -> int | None:
        return max((number for number in self.events if self.one(number, "start")), default=None)

    def lineage(self, top: int) -> list[tuple[int, int, int]]:
        """Return (attempt, from step, up to step) of what counts, newest first."""
        found: list[tuple[int, int, int]] = []
        number: int | None = top
        cut = 1 << 30
        while number is not None:
            start = self.one(number, "start")
            if start is None:
                raise Violation(
                    f"{self.folder.path}: attempt {number} is in a lineage and never started"
                )
            begin = start["resumed_step"] or 0
            found.append((number, begin, cut))
            number, cut = start["resumed_attempt"], min(cut, begin)
        return found


def check_end(watch: Watch, profile: Profile) -> dict[str, Any]:
    """Check everything; return what was counted."""
    attempts = _attempts(watch)
    _check_known(watch)
    for run_id in watch.runs:
        _check_tries(run_id, watch, attempts[run_id])
        _check_cancel(run_id, watch, attempts[run_id])
        _check_unasked(run_id, watch)
        if watch.states[run_id] == "completed":
            _check_completed(run_id, watch, profile, attempts[run_id])
    _check_strangers(watch, profile, attempts)
    return {
        "attempts": sum(map(len, attempts.values())),
        "states": dict(sorted(Counter(watch.states.values()).items())),
    }


def _attempts(watch: Watch) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = defaultdict(list)
    cursor = watch.connection().execute("SELECT * FROM attempts ORDER BY run_id, number")
    names = [column[0] for column in cursor.description]
    for row in cursor.fetchall():
        attempt = dict(zip(names, row, strict=True))
        found[attempt["run_id"]].append(attempt)
    return found


def _check_known(watch: Watch) -> None:
    known = {row[0] for row in watch.connection().execute("SELECT token FROM allocations")}
    unknown = {job.token for job in watch.cluster.all_jobs} - known
    if unknown:
        raise Violation(f"I5: jobs that the ledger does not know: {sorted(unknown)}")


def _check_tries(run_id: str, watch: Watch, attempts: list[Attempt]) -> None:
    query = "SELECT tries, tries_from FROM runs WHERE run_id = ?"
    tries, since = watch.connection().execute(query, (run_id,)).fetchone()
    counted = [
        a for a in attempts if a["number"] > since and a["state"] in ("failed", "out_of_memory")
    ]
    if len(counted) > tries:
        raise Violation(f"I7: run {run_id} failed {len(counted)} times, {tries} are allowed")
    for attempt in counted:
        later = attempts[-1]["number"] > attempt["number"]
        if attempt["failure"] in {*map(str, DETERMINISTIC), "diverged", "refused"} and later:
            raise Violation(f"I7: run {run_id} was tried again after {attempt['failure']}")


def _check_cancel(run_id: str, watch: Watch, attempts: list[Attempt]) -> None:
    if run_id not in watch.user_cancels:
        return
    at, through = watch.user_cancels[run_id]
    for attempt in attempts:
        if (
            attempt["state"] == "completed"
            and attempt["ended_at"] > at + NOTICE_S
            and attempt["number"] <= through
        ):
            raise Violation(
                f"run {run_id} was cancelled, and attempt {attempt['number']} completed afterwards"
            )
    if watch.states[run_id] not in ("cancelled", "completed"):
        raise Violation(f"run {run_id} was cancelled, and is {watch.states[run_id]}")
    if attempts and attempts[-1]["number"] > through:
        raise Violation(f"run {run_id} was cancelled, and tried again")


def _check_unasked(run_id: str, watch: Watch) -> None:
    """Nothing is cancelled but what a user or somebody else cancelled."""
    somebody = run_id in watch.touched or run_id in watch.scancelled_runs
    # A ledger that was lost knows of some cancels by the scheduler's word alone.
    if watch.states[run_id] == "cancelled" and not (somebody or watch.losses):
        raise Violation(f"run {run_id} is cancelled, and nobody asked for it")


def _check_completed(run_id: str, watch: Watch, profile: Profile, attempts: list[Attempt]) -> None:
    disk = Disk(watch.cluster.workspace.run(run_id))
    done = [attempt for attempt in attempts if attempt["state"] == "completed"][-1]
    top = done["number"]
    if disk.one(top, "start") is None:
        # It found the run completed already, and stands for the one that did it.
        top = done["resumed_attempt"]
    end = disk.one(top, "end") if top else None
    if end is None or end["state"] != "completed":
        raise Violation(
            f"I4: run {run_id} is completed by attempt {top}, whose journal does not say so"
        )
    if top != disk.highest_started():
        raise Violation(
            f"I4: run {run_id}: attempt {top} was adopted, {disk.highest_started()} is the highest"
        )
    lineage = disk.lineage(top)
    plan = profile.epochs * STEPS_PER_EPOCH
    _check_steps(run_id, disk, lineage, plan)
    _check_events(run_id, watch, disk, lineage)
    last = next(number for number, begin, cut in lineage if begin < plan <= cut)
    query = "SELECT last, last_epoch FROM results WHERE run_id = ? AND metric = 'top1'"
    found = watch.connection().execute(query, (run_id,)).fetchall()
    if found != [(score(run_id, last, plan), profile.epochs - 1)]:
        raise Violation(f"I4: run {run_id}: results {found} are not those of attempt {last}")


def _check_steps(run_id: str, disk: Disk, lineage: list[tuple[int, int, int]], plan: int) -> None:
    """Every planned step was done once, in order, along the lineage."""
    for number, begin, cut in lineage:
        for step in range(begin, min(plan, cut) + 1):
            kept = disk.folder.checkpoint(number, step) / "m"
            if step == begin or not kept.exists():
                continue
            text = kept.read_text()
            if text != "{" and json.loads(text)["weights"] != weights_at(run_id, step):
                raise Violation(
                    f"I8: run {run_id}: attempt {number} at step {step} is not an uninterrupted run"
                )
    if lineage[-1][1] != 0:
        raise Violation(f"I8: run {run_id}: the lineage does not reach back to the beginning")
    end = disk.one(lineage[0][0], "end")
    if end is None or end["step"] != plan:
        raise Violation(f"I8: run {run_id} is completed at step {end and end['step']} of {plan}")


def _check_events(
    run_id: str, watch: Watch, disk: Disk, lineage: list[tuple[int, int, int]]
) -> None:
    """What was journalled along the lineage is in the ledger, once."""
    for kind, table, key in (
        ("epoch", "epoch_metrics", "seq"), ("evaluation", "evaluations", "seq"), ("checkpoint", "checkpoints", "step"),
    ):  # fmt: skip
        query = f"SELECT attempt, {key} FROM {table} WHERE run_id = ? AND step <= ?"
        for number, _, cut in lineage:
            written = [
                event[key]
                for event in disk.events[number]
                if event["kind"] == kind and event["step"] <= cut
            ]
            rows = watch.connection().execute(query, (run_id, cut)).fetchall()
            kept = sorted(row[1] for row in rows if row[0] == number)
            if kept != sorted(written):
                raise Violation(
                    f"I2/I3: run {run_id} attempt {number}: {kind} {written} written, {kept} in the"
                    " ledger"
                )


def _check_strangers(watch: Watch, profile: Profile, attempts: dict[str, list[Attempt]]) -> None:
    """What somebody cancelled in SLURM stays cancelled, unless it had ended by itself or a user
    wanted it anew.
    """
    if watch.losses:
        return
    doubled = {
        token
        for token, count in Counter(job.token for job in watch.cluster.all_jobs).items()
        if count > 1
    }
    for one in watch.strangers:
        attempt = next((a for a in attempts[one.run_id] if a["number"] == one.attempt), None)
        if not profile.accounting and one.element.state != "VANISHED":
            # Nobody wrote down why a job that had started ended.
            continue
        if (
            one.element.state not in ("CANCELLED", "VANISHED")
            or one.element.job.token in doubled
            or attempt is None
        ):
            continue
        by_itself = one.hosted is not None and one.hosted.state not in (
            None,
            "cancelled",
            "preempted",
            "timeout",
        )
        if by_itself or watch.touched.get(one.run_id, 0.0) >= one.at:
            continue
        # An agent with room had taken the attempt before: what was cancelled was an empty place.
        begun_elsewhere = attempt["token"] != one.element.job.token
        if begun_elsewhere and (attempt["started_at"] or one.at) < one.at:
            continue
        if attempt["state"] != "cancelled":
            text = f"{attempt['state']} ({attempt['failure']}: {attempt['signature']})"
            raise Violation(
                f"run {one.run_id} attempt {one.attempt} was cancelled in SLURM, and is {text}"
            )
        if watch.states[one.run_id] not in ("cancelled", "completed"):
            raise Violation(
                f"run {one.run_id} was cancelled in SLURM, and is {watch.states[one.run_id]}"
            )

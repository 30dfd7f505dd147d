"""Failed runs grouped by their cause: what `vtjobs failures` shows."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...db import lookups, queries, records
from ...db.engine import reading
from ...jobs.documents import Document
from ...jobs.errors import NothingMatched
from ...jobs.run.design import seed_text
from ...jobs.run.selector import Selection
from ...jobs.run.states import FailureClass, RunState
from ...jobs.values import Value, field
from ...jobs.workspace.grid_settings import GridSettings
from ..loop.context import Context
from .causes import Cause, cause_of
from .remedies import remedy


class FailureGroup(Document, frozen=True, kw_only=True):
    """Failed runs with one cause."""

    failure: str = field(name="class")
    """The class of the failure."""
    signature: str
    """The error, without numbers."""
    message: str
    """The own line of the sample's error, in full and with its numbers."""
    place: str
    """File and line of your code where it was raised, such as `head.py:11`; or nothing."""
    runs: int
    """How many."""
    states: dict[str, int]
    hosts: list[str]
    """The nodes that they failed on."""
    common: dict[str, Any]
    """What all of the runs have in common of backbone, dataset, head and seed."""
    sample: str
    """One of the runs."""
    log: str | None
    """Its log."""
    run_ids: list[str]
    """All of them."""
    next: str
    """A command that shows more."""
    remedy: str
    """What to do about the runs that have ended, or nothing."""


class _Ends(Value, frozen=True, kw_only=True):
    """What else is known of runs that failed."""

    errors: dict[str, str]
    """Run -> what its newest attempt stored of its error."""
    settings: dict[str, GridSettings]


def failures(context: Context, selection: Selection) -> list[FailureGroup]:
    """Return the failed runs grouped by cause, the most frequent first."""
    groups: dict[tuple[str, str], list[records.RunRow]] = defaultdict(list)
    for row in _unfinished(context, selection):
        if row.state in (RunState.FAILED, RunState.DIVERGED, RunState.BLOCKED) or row.failure:
            groups[row.failure or row.state, row.signature or row.reason].append(row)
    with reading(context.ledger.engine) as connection:
        errors = lookups.newest_errors(connection, [found[0].run_id for found in groups.values()])
        settings = queries.grid_settings(
            connection, {found[0].grid_id for found in groups.values()}
        )
    return [
        _group(context, failure, signature, members, _Ends(errors=errors, settings=settings))
        for (failure, signature), members in sorted(
            groups.items(), key=lambda item: (-len(item[1]), item[0])
        )
    ]


def _unfinished(context: Context, selection: Selection) -> list[records.RunRow]:
    """Return the selected runs that may have a failure: most runs of a ledger have completed.

    Raises:
        NothingMatched: no run is selected.
    """
    rest = selection.narrowed("state", RunState.COMPLETED, RunState.CANCELLED, negated=True)
    with reading(context.ledger.engine) as connection:
        queries.list_runs(connection, selection, limit=1)
        try:
            return queries.list_runs(connection, rest)
        except NothingMatched:
            return []


def _group(
    context: Context, failure: str, signature: str, members: list[records.RunRow], ends: _Ends
) -> FailureGroup:
    sample = members[0]
    error = ends.errors.get(sample.run_id, "")
    cause = cause_of(context.workspace, sample.grid_id, signature=signature, error=error)
    log = next(iter(map(str, logs_of(context, sample.run_id))), None)
    # What never started has none.
    more = f"vtjobs show {sample.run_id[:8]}" if log is None else f"vtjobs logs {sample.run_id[:8]}"
    return FailureGroup(
        failure=failure,
        signature=signature,
        message=cause.message,
        place=cause.where,
        runs=len(members),
        states=dict(Counter(member.state for member in members)),
        hosts=sorted({member.host for member in members if member.host}),
        common=_common(members),
        sample=sample.run_id,
        log=log,
        run_ids=[member.run_id for member in members],
        next=f"{more}{context.where}",
        remedy=_remedy(members, cause, ends.settings[sample.grid_id], context.where),
    )


def _remedy(members: list[records.RunRow], cause: Cause, settings: GridSettings, where: str) -> str:
    """Return what to do about those of a group that have ended; the others go on by themselves."""
    sample = members[0]
    over = [row.run_id for row in members if row.state in (RunState.FAILED, RunState.DIVERGED)]
    if not over:
        return f"vtjobs why {sample.run_id[:8]}{where}" if sample.state == RunState.BLOCKED else ""
    failure = FailureClass(sample.failure) if sample.failure else None
    return remedy(failure, cause, run_ids=over, settings=settings, where=where)


def _common(members: Iterable[records.RunRow]) -> dict[str, Any]:
    """Return the coordinates that all members share."""
    found: dict[str, set[Any]] = defaultdict(set)
    for member in members:
        for name in ("backbone", "dataset", "head"):
            found[name].add(getattr(member, name))
        found["seed"].add(seed_text(member.seed, member.streams) if member.streams else member.seed)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def logs_of(context: Context, run_id: str, attempt: int | None = None) -> list[Path]:
    """Return the log files of an attempt, by default the last one that left any."""
    folder = context.workspace.run(run_id)
    numbers = [attempt] if attempt else list(reversed(folder.attempts()))
    for number in numbers:
        found = sorted(folder.logs(number).glob("*.log*"))
        if found:
            return found
    return []

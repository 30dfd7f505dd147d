"""The workspace in Prometheus' text format: what `vtjobs metrics` prints.

Figures are by grid, state and class, never by run: a series for each of 100,000 runs would drown
the database that collects them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from ...db import queries, scheduler_notes
from ...db.alike import alike
from ...db.engine import reading
from ...jobs.errors import NothingMatched
from ...jobs.run.selector import Selection
from ...jobs.run.states import RunState
from ...jobs.values import Value, asdict
from ...jobs.workspace.grid_settings import GridSettings
from ..loop.context import Context
from .failures import failures
from .shown import Words
from .spent import Spent, spent

Sample = tuple[Mapping[str, str], float]
"""Labels, and the value that they have."""


class Family(Value, frozen=True):
    """One metric."""

    name: str
    about: str
    samples: list[Sample]


def families(context: Context) -> list[Family]:
    """Return the metrics of a workspace, as the ledger has them now."""
    with reading(context.ledger.engine) as connection:
        grids = queries.grid_settings(connection)
        damaged = queries.damaged_journals(connection)
    try:
        hours, failed = spent(context, Selection(), ["grid"]), failures(context, Selection())
    except NothingMatched:
        # Nothing has been submitted yet.
        hours, failed = [], []
    classes = Counter[str]()
    for group in failed:
        # Runs that another one blocks have not failed themselves.
        classes[group.failure] += group.runs - group.states.get(RunState.BLOCKED, 0)
    return [
        Family(
            "vtjobs_runs",
            "Runs by the word that shows where they stand; one that two grids have counts once.",
            _runs(context, grids),
        ),
        Family(
            "vtjobs_failed_runs",
            "Runs whose latest attempt failed, by the class of the failure.",
            [({"class": name}, count) for name, count in sorted(classes.items()) if count],
        ),
        Family("vtjobs_gpu_hours", "GPU-hours of attempts, by what came of them.", _hours(hours)),
        Family(
            "vtjobs_run_hours",
            "Hours that attempts ran, whatever their GPUs.",
            [(one.group, one.run_hours) for one in hours],
        ),
        Family(
            "vtjobs_scheduler_unreachable",
            "1 where a scheduler cannot be asked at present, else 0.",
            _unreachable(context, grids),
        ),
        Family(
            "vtjobs_damaged_journals",
            "Journals that were set aside.",
            [({}, len(damaged))],
        ),
        Family("vtjobs_as_of_seconds", "When this was read.", [({}, context.clock())]),
    ]


def _runs(context: Context, grids: Iterable[str]) -> list[Sample]:
    words = Words(context)
    counts = Counter[tuple[str, str]]()
    held = {grid_id: runs for grid_id in grids if (runs := words.held(grid_id))}
    with reading(context.ledger.engine) as connection:
        for row in alike(connection, Selection(), held=held):
            counts[row.grid_id, words.of(row)] += row.runs
    return [
        ({"grid": grid_id, "state": word}, count)
        for (grid_id, word), count in sorted(counts.items())
    ]


def _unreachable(context: Context, grids: Mapping[str, GridSettings]) -> list[Sample]:
    away = scheduler_notes.away(context.ledger)
    silent = [name.partition(" at ") for name, fact in away.items() if not fact.is_slow]
    values = {(backend, cluster): 1.0 for backend, _, cluster in silent}
    used = {settings.backend for settings in grids.values() if settings.imported is None}
    answering = used - {name for name, *_ in silent}
    values |= {(backend, ""): 0.0 for backend in answering}
    return [
        ({"backend": backend, "cluster": cluster}, value)
        for (backend, cluster), value in sorted(values.items())
    ]


def _hours(groups: Iterable[Spent]) -> list[Sample]:
    return [
        ({**one.group, "outcome": outcome}, hours)
        for one in groups
        for outcome, hours in asdict(one.gpu_hours).items()
    ]


def as_text(found: Iterable[Family]) -> str:
    """Return metrics in Prometheus' text format, version 0.0.4."""
    lines = []
    for family in found:
        lines += [f"# HELP {family.name} {family.about}", f"# TYPE {family.name} gauge"]
        for labels, value in family.samples:
            inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{family.name}{f'{{{inner}}}' if inner else ''} {value:.10g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

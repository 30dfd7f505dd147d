"""The workspace in Prometheus' text format: what `vtjobs metrics` prints.

Figures are by grid, state and class, never by run: a series for each of 100,000 runs would drown
the database that collects them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...jobs.documents import asdict
from ...jobs.errors import NothingMatched
from ...jobs.run.selector import Selection
from ..loop.context import Context
from .failures import failures
from .spent import Spent, spent
from .status import Status, status

Sample = tuple[Mapping[str, str], float]
"""Labels, and the value that they have."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    about: str
    samples: list[Sample]


def families(context: Context) -> list[Family]:
    """Return the metrics of a workspace, as the ledger has them now."""
    found = status(context, Selection())
    try:
        hours, failed = spent(context, Selection(), ["grid"]), failures(context, Selection())
    except NothingMatched:
        # Nothing has been submitted yet.
        hours, failed = [], []
    classes = Counter[str]()
    for group in failed:
        classes[group.failure] += group.runs
    return [
        Family("vtjobs_runs", "Runs by the word that shows where they stand.", _runs(found)),
        Family(
            "vtjobs_failed_runs",
            "Runs whose latest attempt failed, by the class of the failure.",
            [({"class": name}, count) for name, count in sorted(classes.items())],
        ),
        Family("vtjobs_gpu_hours", "GPU-hours of attempts, by what came of them.", _hours(hours)),
        Family(
            "vtjobs_run_hours",
            "Hours that attempts ran, whatever their GPUs.",
            [(one.group, one.run_hours) for one in hours],
        ),
        Family(
            "vtjobs_scheduler_unreachable",
            "1 for each scheduler that cannot be asked at present.",
            [({"backend": one.backend, "cluster": one.cluster}, 1.0) for one in found.unreachable],
        ),
        Family(
            "vtjobs_damaged_journals",
            "Journals that were set aside.",
            [({}, len(found.damaged_journals))],
        ),
        Family("vtjobs_as_of_seconds", "When this was read.", [({}, context.clock())]),
    ]


def _runs(found: Status) -> list[Sample]:
    return [
        ({"grid": grid.grid_id, "state": word}, count)
        for grid in found.grids
        for word, count in grid.shown.items()
        if count
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

"""A report's cells as `analysis.findings.cells` makes them, from plain values."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from vtjobs.analysis.findings.cell import Cell
from vtjobs.jobs.run.comparing import Select
from vtjobs.jobs.values import changed


def cell(
    name: str,
    values: Sequence[float] | Mapping[int, float],
    *,
    baseline: str | None = None,
    **more: Any,
) -> Cell:
    """Return a cell whose head is called as it is.

    Args:
        name: of cell and head.
        values: by seed, from 0 on where they are a list.
        baseline: the cell that it is compared with.
        more: other fields; `states` counts into what is planned, and diverged runs have the seeds
            after the values.
    """
    by_seed = dict(values) if isinstance(values, Mapping) else dict(enumerate(values))
    numbers = list(by_seed.values())
    states = more.get("states", {})
    after = max(by_seed, default=-1) + 1
    found = Cell(
        schema_version=1, cell_id=name, match_id="match", backbone="vit", dataset="digits", head=name,
        recipe="quickstart", stage="", axes={}, fidelity={}, metric="top1", set="test", better="max",
        select=Select.LAST, n=len(numbers), planned=len(numbers) + sum(states.values()), states={},
        missing_seeds=[], lost_seeds=[], unscored_seeds=[], cancelled_seeds=[], retried_seeds=[], redrawn_seeds=[], diverged_seeds=list(range(after, after + states.get("diverged", 0))), chance=10.0,
        candidates=[1], epochs=[3], values=by_seed, mean=statistics.fmean(numbers) if numbers else None,
        std=statistics.stdev(numbers) if len(numbers) > 1 else None, best_minus_last=0.1, resumed=0,
        resumed_inexactly=0, cut_seeds=[], imported_seeds=[], apart=0, tried=1, baseline=baseline, baseline_head="supervised", gain=None, gain_interval=None,
        is_baseline=baseline is None,
    )  # fmt: skip
    return changed(found, **more)

"""The gain of cells over others by epoch, seed by seed: what `vtjobs curve --over` shows.

The papers plot it against the length of training: a head helps most where training is short
(DRLoc, section 6; RelViT, figure 4). It is no test, as no curve is.
"""

from collections.abc import Sequence

from ...db.results import smaller_is_better
from ...jobs.errors import BadInput, suggest
from ...jobs.run.spec import BASELINE
from ...jobs.values import changed
from ..stats.curves import band, passing
from .curves import CellCurve


def gains(curves: Sequence[CellCurve], *, over: str) -> list[CellCurve]:
    """Return the gain of each cell over the one that differs in the head alone.

    A value of a gain is the difference of two runs of one seed at one epoch, positive where the
    cell is better. Only seeds and epochs that both have count.

    Args:
        curves: of cells, both those that gain and those that are gained over.
        over: the head of these; `supervised` is that of every baseline, also in stages.

    Raises:
        BadInput: no cell has this head, or none can be held against one that has it.
    """
    others = {curve.match_id: curve for curve in curves if _has_head(curve, over)}
    if not others:
        heads = dict.fromkeys(curve.head for curve in curves)
        raise BadInput(f"--over {over}: no selected cell has this head. {suggest(over, heads)}")
    found = [
        gained
        for curve in curves
        if not _has_head(curve, over)
        if (other := others.get(curve.match_id)) is not None
        if (gained := _gain(curve, other)) is not None
    ]
    if not found:
        raise BadInput(
            f"--over {over}: no selected cell differs from one with this head in its head alone and"
            " has seeds and epochs in common with it"
        )
    return found


def _has_head(curve: CellCurve, head: str) -> bool:
    return curve.head == head or (head == BASELINE and curve.is_baseline)


def _gain(curve: CellCurve, other: CellCurve) -> CellCurve | None:
    sign = -1 if smaller_is_better(curve.metric) else 1
    mine, theirs = curve.curves, other.curves
    both = {
        seed: {
            epoch: sign * (value - theirs[seed][epoch])
            for epoch, value in own.items()
            if epoch in theirs[seed]
        }
        for seed, own in mine.items()
        if seed in theirs
    }
    both = {seed: values for seed, values in both.items() if values}
    if not both:
        return None
    return changed(
        curve,
        points=band(both),
        runs={str(seed): curve.runs[str(seed)] for seed in both},
        seeds={str(seed): values for seed, values in both.items()},
        over=other.cell_id,
        passing=passing(mine, theirs, at=other.epochs, sign=sign),
    )

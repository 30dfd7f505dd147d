"""The gain of cells over others by epoch, seed by seed: what `vtjobs curve --over` shows.

The papers plot it against the length of training: a head helps most where training is short
(DRLoc, section 6; RelViT, figure 4). It is no test, as no curve is.
"""

from collections.abc import Sequence

from ...db.results import smaller_is_better
from ...jobs.documents import changed
from ...jobs.errors import BadInput, suggest
from ..stats.curves import band, passing
from .curves import CellCurve

_LABELS = ("backbone", "dataset", "head", "recipe", "stage")


def gains(curves: Sequence[CellCurve], *, by: str, over: str) -> list[CellCurve]:
    """Return the gain of each cell over the one that differs in one setting alone.

    A value of a gain is the difference of two runs of one seed at one epoch, positive where the
    cell is better. Only seeds and epochs that both have count.

    Args:
        curves: of cells, both those that gain and those that are gained over.
        by: the setting: backbone, dataset, head, recipe, stage or an axis.
        over: its value in the cells that are gained over.

    Raises:
        BadInput: no cell has this value, or none can be held against one that has it.
    """
    values = dict.fromkeys(str(_value(curve, by)) for curve in curves)
    if over not in values:
        raise BadInput(f"--over {over}: no selected cell has this {by}. {suggest(over, values)}")
    others = {_rest(curve, by): curve for curve in curves if str(_value(curve, by)) == over}
    found = [
        gained
        for curve in curves
        if str(_value(curve, by)) != over
        if (other := others.get(_rest(curve, by))) is not None
        if (gained := _gain(curve, other)) is not None
    ]
    if not found:
        raise BadInput(
            f"--over {over}: no selected cell differs from one with this {by} in that alone and has"
            " seeds and epochs in common with it"
        )
    return found


def _value(curve: CellCurve, by: str) -> object:
    return getattr(curve, by) if by in _LABELS else curve.axes.get(by, "")


def _rest(curve: CellCurve, by: str) -> tuple[object, ...]:
    labels = [getattr(curve, name) for name in _LABELS if name != by]
    axes = sorted((name, str(value)) for name, value in curve.axes.items() if name != by)
    return (*labels, *axes)


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

"""Which run of an earlier stage a student learns from."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..errors import suggest
from ..run.spec import Axes
from ..strict_yaml import Path_
from .entries import Entry
from .expansion import Made
from .resolve import Resolver


class Point(Protocol):
    """A place in the grid's product."""

    dataset: Entry
    head: Entry
    axes: Axes


Place = TypeVar("Place", bound=Any)


def teacher_stage(head: Entry) -> str | None:
    """Return the stage that a head names for its teacher, or None."""
    teacher = (
        head.settings.get("teacher")
        if head.name == "distill" and isinstance(head.settings, dict)
        else None
    )
    return teacher if isinstance(teacher, str) else None


def with_teachers(
    points: Iterator[Place],
    made: Mapping[str, Sequence[Made]],
    cells: Sequence[Any],
    resolver: Resolver,
) -> Iterator[Place]:
    """Give each point whose head names a stage for its teacher that stage's cell of the same
    dataset and axes.

    Args:
        points: of a stage that starts anew; dataclasses with a `parent`.
        made: earlier stage -> its cells, once for each point that they were made for.
        cells: all cells so far.
        resolver: gathers the mistakes; such points are left out.
    """
    for point in points:
        stage = teacher_stage(point.head)
        if stage is None:
            yield point
            continue
        where: Path_ = (*point.head.path, point.head.name, "teacher")
        if stage not in made:
            resolver.problem(where, f"no earlier stage {stage!r}", suggest(stage, made))
            continue
        teachers = list(
            dict.fromkeys(
                one.cell for one in made[stage] if _teaches(cells[one.cell], one.axes, point)
            )
        )
        if len(teachers) != 1:
            message = (
                f"stage {stage!r} has {len(teachers)} cells on {point.dataset.label}; a teacher"
                " needs one"
            )
            resolver.problem(where, message)
        elif not json.loads(cells[teachers[0]].spec.head)["params"].get("labels", True):
            resolver.problem(
                where, f"stage {stage!r} trains without labels; a teacher needs a classifier"
            )
        else:
            yield dataclasses.replace(point, parent=teachers[0])


def _teaches(cell: Any, axes: Axes, point: Point) -> bool:
    """Whether a cell is on a point's dataset, and in the same place of the axes that both have."""
    apart = [key for key, value in axes.items() if key in point.axes and point.axes[key] != value]
    return bool(cell.entries[1].key == point.dataset.key) and not apart

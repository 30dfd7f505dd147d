"""A place in a grid's product, and what the grid's axes and overrides say about it."""

from dataclasses import dataclass, field

from ..run.spec import Axes
from ..strict_yaml import Path_
from ..values import changed
from .entries import Entry, Given
from .expansion import Cell


@dataclass(slots=True)
class Point:
    """A place in the product before its settings are resolved."""

    backbone: Entry
    dataset: Entry
    head: Entry
    axes: Axes
    seeds: list[int]
    parent: int | None = None
    """Index of the cell whose weights it starts from."""


@dataclass(slots=True)
class PointSettings:
    """Everything that axes and overrides say about one point."""

    recipe: str
    recipe_path: Path_
    """Where in the grid file the recipe is named."""
    train: Given = field(default_factory=dict)
    sources: dict[str, Path_] = field(default_factory=dict)
    """Key of `train` -> where in the grid file it stands."""
    backbone: Given = field(default_factory=dict)
    dataset: Given = field(default_factory=dict)
    head: Given = field(default_factory=dict)


def with_axes_of_both(cell: Cell, axes: Given) -> Cell:
    """Return a cell that several points share, with the axes in which they agree."""
    common = {name: value for name, value in cell.axes.items() if axes.get(name, value) == value}
    return cell if common == cell.axes else changed(cell, axes=common)

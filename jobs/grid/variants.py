"""The named sets of changes of a grid, each of which may extend an earlier one."""

from typing import Any

from ..strict_yaml import Path_
from .schema import Grid

# In a variant: the name of the one whose changes it begins with.
EXTENDS = "extends"


def changes_of(grid: Grid, name: str) -> list[tuple[str, Any, Path_]]:
    """Return dotted path, value and place in the file of a variant's changes, in their order.

    Those of the variant that it extends come first: a later value of the same path wins.

    Args:
        grid: whose `extends` were checked, see `mistake`.
        name: of a variant.
    """
    own = grid.variants[name]
    before = changes_of(grid, own[EXTENDS]) if EXTENDS in own else []
    return before + [
        (path, value, ("variants", name, path)) for path, value in own.items() if path != EXTENDS
    ]


def mistake(grid: Grid, name: str) -> str:
    """Return why a variant cannot extend what it names; empty where it can."""
    if EXTENDS not in grid.variants[name]:
        return ""
    # Only an earlier one, so that none extends itself.
    earlier = list(grid.variants)[: list(grid.variants).index(name)]
    base = grid.variants[name][EXTENDS]
    if base in earlier:
        return ""
    known = f"earlier ones: {', '.join(earlier)}" if earlier else "it is the first one"
    return f"no earlier variant {base!r} ({known})"

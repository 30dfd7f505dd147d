"""What a head says of the relations between the patches of an image, beside what is true."""

from typing import NamedTuple, Protocol

from torch import Tensor


class Relation(NamedTuple):
    """One relation between each patch and a patch of reference, in the unit of the head."""

    name: str
    predicted: Tensor
    """[B, h, w] fp32."""
    true: Tensor
    """[h, w] fp32."""


class ShowsRelations(Protocol):
    """A head whose predictions can be drawn."""

    def relations(
        self, grids: list[Tensor], row: float, column: float
    ) -> tuple[tuple[int, int], list[Relation]]:
        """Return the patch of reference, and what is predicted of the other patches.

        Args:
            grids: as the head gets them in training, of images that nothing was done to.
            row: of the point that the patch of reference holds, as a share of the image's height.
            column: as a share of its width.
        """
        ...


def patch_at(row: float, column: float, height: int, columns: int) -> tuple[int, int]:
    """Return row and column of the patch that holds a point, given by its shares of the sides."""
    return min(int(row * height), height - 1), min(int(column * columns), columns - 1)

"""The figure of images with the training images that are nearest to them."""

import io
from collections.abc import Sequence
from typing import Any

from ....jobs.run.pictures import Queried
from .canvas import COLOURS, FAINT, WIDTH, Drawn, new_figure, styled

# Frames of neighbours of the image's class, and of another one.
SAME, OTHER = COLOURS[2], COLOURS[1]


def nearest(queries: Sequence[Queried], text: str) -> Drawn:
    """Draw an image a line, then its neighbours with a frame that says whether the class is right.

    Args:
        queries: at least one image, with at least one neighbour.
        text: what is shown, for who cannot see it.
    """
    across = 1 + max(len(one.neighbours) for one in queries)
    side = WIDTH / across
    with styled():
        figure = new_figure(len(queries) * (side + 0.36))
        grid = figure.subplots(len(queries), across, squeeze=False)
        for line, one in zip(grid, queries, strict=True):
            _picture(line[0], one.image, f"image {one.place}\nclass {one.label}", FAINT)
            for axes, found in zip(line[1:], one.neighbours, strict=False):
                colour = SAME if found.label == one.label else OTHER
                _picture(axes, found.image, f"class {found.label}\n{found.cosine:.2f}", colour)
            for axes in line[1 + len(one.neighbours) :]:
                axes.set_axis_off()
    return Drawn(
        name="neighbours",
        title="Nearest training images",
        text=text,
        heading=["image", "class", "rank", "training_image", "its_class", "cosine"],
        rows=[
            [one.place, one.label, rank, found.place, found.label, found.cosine]
            for one in queries
            for rank, found in enumerate(one.neighbours, start=1)
        ],
        figure=figure,
    )


def _picture(axes: Any, image: bytes, title: str, colour: str) -> None:
    from matplotlib.image import imread

    axes.imshow(imread(io.BytesIO(image), format="png"), cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, fontsize=6, fontweight="normal")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, color=colour, linewidth=2)

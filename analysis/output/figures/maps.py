"""Figures of what a network shows of images, or of its own weights."""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

from ....jobs.errors import BadInput
from ....jobs.run.pictures import BlockDepth, FeatureSpace, LayerSparsity, Panel, Pictures, Shown
from .canvas import COLOURS, WIDTH, Drawn, new_figure, styled
from .nearest import nearest

# Maps side by side; more go into the next line.
MOST_ACROSS = 8
TITLES = {
    "attention": "Attention to patches",
    "cam": "Class activation maps",
    "relations": "Relations between patches",
    "filters": "Filters over patches",
    "masks": "Masks and predictions",
}
# Classes with the same colour differ in their mark, as far as there are marks.
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
# Classes that a legend names.
MOST_NAMED = len(COLOURS) * 4
# Inches; a page of PDF is at most 200 high.
MOST_HIGH = 190
# Letters of a title that fit into an inch.
LETTERS = 15
# Of a map over its image.
OPACITY = 0.5
# Zero in the middle: white.
DIVERGING = "RdBu_r"
SEQUENTIAL = "viridis"


def maps(found: Pictures) -> list[Drawn]:
    """Draw an image or a block a line, with its maps; and how sparse the layers are, if told.

    Of features, their points and their principal components; of neighbours, the images that are
    nearest; of depth, what the blocks add.

    Args:
        found: at least one image or block, with at least one map; or features; or images with
            neighbours; or blocks.

    Raises:
        BadInput: there are more maps than a page can hold.
    """
    if found.space is not None:
        return [_space(found.space, found.text), _energy(found.space)]
    if found.queries:
        return [nearest(found.queries, found.text)]
    if found.blocks:
        return _depth(found.blocks, found.text)
    drawn = [_maps(found)]
    if found.layers:
        drawn.append(_sparsity(found.layers))
    return drawn


def _maps(found: Pictures) -> Drawn:
    across = min(MOST_ACROSS, max(map(_count, found.shown)))
    lines = [-(-_count(shown) // across) for shown in found.shown]
    side = WIDTH / across
    # Room for two lines of title above each line, of a size that does not depend on the maps'.
    height = sum(lines) * (side + 0.42)
    if height > MOST_HIGH:
        squares = sum(map(_count, found.shown))
        raise BadInput(
            f"{squares} maps do not fit into a figure. Name fewer images with --images, or fewer"
            " classes with --classes"
        )
    with styled():
        figure = new_figure(height)
        grid = figure.add_gridspec(sum(lines), across)
        line = 0
        for shown, own in zip(found.shown, lines, strict=True):
            places = [grid[line + place // across, place % across] for place in range(across * own)]
            _draw(figure, places, shown, wide=int(side * LETTERS))
            line += own
    return Drawn(
        name=found.kind,
        title=TITLES[found.kind],
        text=found.text,
        heading=["shown", "map", "row", "column", "value"],
        rows=[
            [shown.title, panel.title, row, column, value]
            for shown in found.shown
            for panel in shown.panels
            for row, values in enumerate(panel.values, start=1)
            for column, value in enumerate(values, start=1)
        ],
        figure=figure,
    )


def _count(shown: Shown) -> int:
    """Return how many squares are drawn: the maps, and what they are of."""
    return len(shown.panels) + (shown.image is not None)


def _draw(figure: Any, places: Sequence[Any], shown: Shown, *, wide: int) -> None:
    left = iter(places)
    pixels, ratio = None, 1.0
    if shown.image is not None:
        pixels = _pixels(shown.image)
        ratio = pixels.shape[0] / pixels.shape[1]
        axes = _square(figure, next(left), textwrap.fill(shown.title, wide))
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, extent=(0, 1, 1, 0), aspect=ratio)
        _mark(axes, shown)
    for number, panel in enumerate(shown.panels):
        title = panel.title
        if pixels is None and number == 0:
            title = f"{shown.title}: {title}"
        axes = _square(figure, next(left), textwrap.fill(title, wide))
        if panel.covers and pixels is not None:
            axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, extent=(0, 1, 1, 0))
        _map(axes, panel, ratio)
        _mark(axes, shown)


def _square(figure: Any, place: Any, title: str) -> Any:
    axes = figure.add_subplot(place)
    axes.set_title(title, fontsize=7, fontweight="normal")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _map(axes: Any, panel: Panel, ratio: float) -> None:
    """Draw a map.

    Args:
        axes: where.
        panel: the map.
        ratio: height by width of what it is a map of.
    """
    is_signed = panel.low is not None and panel.high is not None and panel.low == -panel.high
    axes.imshow(
        panel.values,
        cmap=DIVERGING if is_signed else SEQUENTIAL,
        vmin=panel.low,
        vmax=panel.high,
        alpha=OPACITY if panel.covers else None,
        interpolation="bilinear" if panel.covers else "nearest",
        extent=(0, 1, 1, 0),
        aspect=ratio,
    )


def _mark(axes: Any, shown: Shown) -> None:
    if shown.patch is None:
        return
    from matplotlib.patches import Rectangle

    left, top, width, height = shown.patch
    axes.add_patch(
        Rectangle((left, top), width, height, fill=False, edgecolor=COLOURS[1], linewidth=1.5)
    )


def _pixels(image: bytes) -> Any:
    from matplotlib.image import imread

    return imread(io.BytesIO(image), format="png")


def _sparsity(layers: Sequence[LayerSparsity]) -> Drawn:
    kinds = list(dict.fromkeys(layer.kind for layer in layers))
    with styled():
        figure = new_figure(3.6)
        axes = figure.add_subplot()
        for number, kind in enumerate(kinds):
            own = [layer for layer in layers if layer.kind == kind]
            axes.plot(
                [layer.block for layer in own],
                [layer.sparsity for layer in own],
                marker="o",
                markersize=3,
                color=COLOURS[number % len(COLOURS)],
                linestyle=("-", "--", ":")[number // len(COLOURS) % 3],
                label=kind,
            )
        axes.set(xlabel="block", ylabel="weights near zero, %", ylim=(0, 100))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)
    return Drawn(
        name="sparsity",
        title="Sparsity of the layers",
        text=(
            "Percent of each linear layer's weights whose magnitude is below 5 % of the layer's"
            " largest, by block."
        ),
        heading=["layer", "kind", "block", "sparsity"],
        rows=[[layer.layer, layer.kind, layer.block, layer.sparsity] for layer in layers],
        figure=figure,
    )


def _space(space: FeatureSpace, text: str) -> Drawn:
    classes = sorted(set(space.labels))
    with styled():
        figure = new_figure(6.4)
        axes = figure.add_subplot()
        for number, one in enumerate(classes):
            own = [place for place, label in enumerate(space.labels) if label == one]
            axes.scatter(
                [space.x[place] for place in own],
                [space.y[place] for place in own],
                s=9,
                linewidths=0.6,
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number // len(COLOURS) % len(MARKERS)],
                label=f"class {one}",
            )
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", adjustable="datalim")
        if len(classes) <= MOST_NAMED:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)
    named = "" if len(classes) <= MOST_NAMED else " The CSV file names the classes."
    return Drawn(
        name="features",
        title="Features of images",
        text=f"{text} Perplexity {space.perplexity:g}.{named}",
        heading=["image", "class", "x", "y"],
        rows=[list(row) for row in zip(space.places, space.labels, space.x, space.y, strict=True)],
        figure=figure,
    )


def _energy(space: FeatureSpace) -> Drawn:
    counts = list(range(1, len(space.energy) + 1))
    with styled():
        figure = new_figure(3.6)
        axes = figure.add_subplot()
        axes.plot(counts, space.energy, color=COLOURS[0], marker="o", markersize=3)
        axes.set(xlabel="principal components", ylabel="variance, %", ylim=(0, 102))
        axes.xaxis.get_major_locator().set_params(integer=True)
    return Drawn(
        name="principal-components",
        title="Principal components of the features",
        text=(
            "Percent of the features' variance in their first principal components: the fewer it"
            " takes, the fewer directions the features use."
        ),
        heading=["components", "variance"],
        rows=[list(row) for row in zip(counts, space.energy, strict=True)],
        figure=figure,
    )


def _depth(blocks: Sequence[BlockDepth], text: str) -> list[Drawn]:
    adding = [one for one in blocks if one.mixing is not None and one.mlp is not None]
    numbers = [one.block for one in adding]
    added = {
        "attention (what mixes tokens)": [one.mixing for one in adding],
        "MLP": [one.mlp for one in adding],
    }
    found = [
        Drawn(
            name="depth",
            title="What each block adds",
            text=text,
            heading=["block", "mixing", "mlp"],
            rows=[[one.block, one.mixing, one.mlp] for one in adding],
            figure=_by_block(numbers, added, "norm added / norm before"),
        )
    ]
    tokens = [one for one in blocks if one.similarity is not None]
    if tokens:
        lines = {"class and distillation token": [one.similarity for one in tokens]}
        similar = Drawn(
            name="token-similarity",
            title="Similarity of the class token and the distillation token",
            text=(
                "Cosine of the class token and the distillation token after each block, as a mean"
                " over images; at 0, of the two learned tokens."
            ),
            heading=["block", "similarity"],
            rows=[[one.block, one.similarity] for one in tokens],
            figure=_by_block([one.block for one in tokens], lines, "cosine similarity"),
        )
        found.append(similar)
    return found


def _by_block(numbers: Sequence[int], lines: dict[str, list[Any]], label: str) -> Any:
    with styled():
        figure = new_figure(3.6)
        axes = figure.add_subplot()
        for number, (name, values) in enumerate(lines.items()):
            axes.plot(numbers, values, marker="o", markersize=3, color=COLOURS[number], label=name)
        axes.set(xlabel="block", ylabel=label)
        axes.set_ylim(bottom=min(0, *axes.get_ylim()))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize=7)
    return figure

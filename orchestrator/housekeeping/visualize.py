"""Have a run's final weights show maps: in a process of its own, as that needs torch."""

import json
from collections.abc import Sequence

from ...db import lookups, queries
from ...db.engine import reading
from ...jobs.documents import Document, from_plain
from ...jobs.errors import BadInput
from ...jobs.run.picture_kinds import Kind
from ...jobs.run.pictures import BlockDepth, LayerSparsity, Pictures, Queried
from ..loop.context import Context
from .evaluate import check_sets, other_images
from .export import with_weights
from .worker_tool import run_tool


class Nearest(Document, frozen=True, kw_only=True):
    """Which training images are nearest to an image."""

    image: int
    """Place in the set, from 0."""
    label: int
    """Its class."""
    train: list[int]
    """Places in the training set, the nearest first."""
    labels: list[int]
    """Their classes."""
    cosines: list[float]
    """Of their features with the image's."""


class Visualized(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What was drawn of a run."""

    schema_version: int = 1
    """Raised when a key is removed or changes its meaning."""
    run_id: str
    kind: Kind
    """attention, cam, relations, filters, features, neighbours, depth or masks."""
    text: str
    """What the maps show, for who cannot see them."""
    shown: list[str]
    """Titles of the images or blocks, in their order."""
    layers: list[LayerSparsity]
    """With filters: how many of each layer's weights are near zero."""
    blocks: list[BlockDepth]
    """With depth: what each block adds."""
    nearest: list[Nearest]
    """With neighbours: the training images that are nearest to each image."""
    files: list[str]
    """Figures as SVG and PDF, and their numbers as CSV."""


def nearest_of(queries: Sequence[Queried]) -> list[Nearest]:
    """Return the neighbours of images without their pictures."""
    return [
        Nearest(
            image=one.place,
            label=one.label,
            train=[found.place for found in one.neighbours],
            labels=[found.label for found in one.neighbours],
            cosines=[found.cosine for found in one.neighbours],
        )
        for one in queries
    ]


def pictures(
    context: Context,
    run_id: str,
    kind: Kind,
    *,
    set_name: str,
    images: Sequence[int] = (),
    classes: Sequence[int] = (),
    labels: str | None = None,
    point: tuple[float, float] = (0.5, 0.5),
) -> Pictures:
    """Return the maps of a completed run.

    Args:
        context: workspace and ledger.
        run_id: the run.
        kind: of the maps.
        set_name: whose images are shown.
        images: their places in the set, from 0; none: four that are spread over it.
        classes: where each has a map of its own; none: the predicted and the right one. Of features
            and neighbours, the trained classes whose images are shown.
        labels: a known dataset with the same images, whose classes features and neighbours show.
        point: of `relations`, what the patch of reference holds: row and column, as shares of the
            image's sides.

    Raises:
        BadInput: the run cannot show this; the message says why.
        VtjobsError: the maps cannot be made; the message says why.
    """
    with reading(context.ledger.engine) as connection:
        row = with_weights(connection, run_id)
        settings = queries.grid_settings(connection, {row.grid_id})[row.grid_id]
        runs = lookups.completed_runs(connection, [run_id])
    for run in runs:
        check_sets(run.settings.dataset, [set_name], option="--set")
        if (why := other_images(run.settings.dataset, labels)) is not None:
            raise BadInput(why)
    words = [
        *("--workspace", str(context.workspace.root)),
        *("--data", str(context.config.data_root), "--paths", json.dumps(settings.paths)),
        *("--kind", kind, "--set", set_name),
        *("--images", *map(str, images), "--classes", *map(str, classes)),
        *(["--labels", labels] if labels is not None else []),
        *("--point", *map(str, point), run_id),
    ]
    return from_plain(json.loads(run_tool("visualize", words)), Pictures)

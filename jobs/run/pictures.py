"""What finished weights show of images, or of themselves, as `vtjobs visualize` draws it."""

from ..documents import Document
from ..values import field
from .picture_kinds import Kind


class Panel(Document, frozen=True, kw_only=True):
    """One map of numbers."""

    title: str
    values: list[list[float]]
    """Rows from the top, each from the left."""
    low: float | None = None
    """Value at the dark end of the colours; None: the map's own smallest."""
    high: float | None = None
    """Value at the bright end."""
    covers: bool = False
    """Whether the map is drawn over the image."""


class Shown(Document, frozen=True, kw_only=True):
    """An image, or a block of the network, with its maps."""

    title: str
    panels: list[Panel]
    image: bytes | None = None
    """The image as the network got it, without its normalisation, as PNG; None for a block."""
    patch: tuple[float, float, float, float] | None = None
    """Of the patch that the maps are relative to: left, top, width and height, as shares of the
    image's sides."""


class LayerSparsity(Document, frozen=True, kw_only=True):
    """How many of a layer's weights are near zero."""

    layer: str
    """Its name in the network."""
    kind: str
    """`patches` of a layer that mixes patches, else the layer's name within its block."""
    block: int
    """Of the network, from 1."""
    sparsity: float
    """Percent of the weights whose magnitude is below 5 % of the layer's largest."""


class FeatureSpace(Document, frozen=True, kw_only=True):
    """The features of images, as points of a plane."""

    places: list[int]
    """Of the images in the set, from 0."""
    labels: list[int]
    """Their classes."""
    x: list[float]
    """By t-SNE; its axes have no unit."""
    y: list[float]
    perplexity: float
    """Of t-SNE: about how many neighbours of each image count."""
    energy: list[float]
    """Percent of the features' variance in the first principal component, the first two, and so
    on."""


class BlockDepth(Document, frozen=True, kw_only=True):
    """What a block adds to what goes through it."""

    block: int
    """Of the network, from 1; 0 of what the network begins with."""
    mixing: float | None = None
    """Norm of what attention, or else what mixes tokens, adds, divided by the norm of what it is
    added to: mean over tokens and images.
    """
    mlp: float | None = None
    """The same of the MLP."""
    similarity: float | None = None
    """Cosine of the class token and the distillation token after the block, mean over images; null
    without a distillation token.
    """


class Neighbour(Document, frozen=True, kw_only=True):
    """A training image whose features are near to another image's."""

    place: int
    """In the training set, from 0."""
    label: int
    """Its class."""
    cosine: float
    """Of the two images' features."""
    image: bytes
    """As the network gets it, without its normalisation, as PNG."""


class Queried(Document, frozen=True, kw_only=True):
    """An image with the training images that are nearest to it."""

    place: int
    """In its set, from 0."""
    label: int
    """Its class."""
    image: bytes
    """As the network gets it, without its normalisation, as PNG."""
    neighbours: list[Neighbour]
    """The nearest first."""


class Pictures(Document, frozen=True, kw_only=True):
    """All that is drawn of one run."""

    run_id: str
    kind: Kind
    text: str
    """What the maps show, for who cannot see them."""
    shown: list[Shown]
    layers: list[LayerSparsity] = field(default_factory=list)
    space: FeatureSpace | None = None
    blocks: list[BlockDepth] = field(default_factory=list)
    queries: list[Queried] = field(default_factory=list)

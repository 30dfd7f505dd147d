"""What submission asks about a backbone, and what timm answers."""

from typing import Literal

from ..documents import Document
from .settings import BackboneSettings, HeadSettings, ModelShape


class Question(Document, frozen=True, kw_only=True):
    """What the making of a cell's backbone depends on."""

    backbone: BackboneSettings
    shape: ModelShape
    head: HeadSettings
    """With the parameters alone that the making depends on."""
    weights_file: str | None = None
    """That the model starts from: it must fit; None where there is none, or none to be seen."""
    parent: "Question | None" = None
    """Of the cell that this one starts from or learns from."""
    teacher: str | BackboneSettings | None = None
    """`stage`, or another model at this cell's classes and size."""
    trainable: Literal["all", "attention", "classifier"] = "all"
    """The part that is trained: the model must have it."""
    frozen: tuple[str, ...] = ()
    """Patterns of parameters that are not trained: each must name one."""
    init_only: tuple[str, ...] = ()
    """Patterns of parameters that are taken from the parent: each must name one."""
    by_layer: bool = False
    """Whether each layer has a learning rate of its own."""


class Facts(Document, frozen=True, kw_only=True):
    """What timm says of a backbone, or its error."""

    error: str | None = None
    parameters: int = 0
    width: int = 0
    """Of a token."""
    grid: tuple[int, int] = (0, 0)
    """Rows and columns of tokens."""
    batch_norm: bool = False
    """Whether it keeps running statistics of the batch."""

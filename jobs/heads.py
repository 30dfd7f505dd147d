"""The parameters of the auxiliary heads: what a grid may say about each, and what it means."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Head(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Supervised(Head):
    """Nothing beside the classifier: the baseline."""


class DRLoc(Head):
    """Dense relative localization (Liu et al. 2021, eq. 1; loss averaged as in the pseudo-code of fig. 2)."""

    weight: Annotated[float, Field(ge=0)] | None = Field(
        None, description="λ of the total loss; null: the paper's value for this backbone"
    )
    pairs: int = Field(64, ge=1, le=65_536, description="m, token pairs drawn per image and step")
    width: int = Field(512, ge=1, le=65_536, description="hidden width of the three-layer MLP")
    grid: int = Field(7, ge=2, description="a token grid that is a multiple of this is average-pooled down to it")


Task = Literal["sprel", "abspos"]


def _default_tasks() -> list[Task]:
    return ["sprel", "abspos"]


class RelViT(Head):
    """Relations between all patches (Camporese et al. 2022), trained jointly with the labels."""

    tasks: list[Task] = Field(
        default_factory=_default_tasks, min_length=1, description="SpRel: eq. 5, 10; AbsPos: eq. 9, 11"
    )
    weight: Annotated[float, Field(ge=0)] = Field(1.0, description="of the tasks' summed loss")


HEADS: dict[str, type[Head]] = {"supervised": Supervised, "drloc": DRLoc, "relvit": RelViT}
BASELINE = "supervised"
# Heads that need a grid of tokens with at least two rows and two columns.
SPATIAL = frozenset(("drloc", "relvit"))

"""A lab's own dataset: a class that reads images, `file.py:Class` in a grid.

What submission must know of it without running it stands in the grid: the numbers of classes and
images, and where its files are.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from . import catalogue
from .entries import Given
from .own_source import NotOwn, Source, Sources, find

# What the class gets by place: where its files are, and which split.
FIRST = 2
# What every image folder is called in a run's settings.
FOLDER = "folder"


class OwnDataset(BaseModel):
    """What a grid says of an own dataset; all other keys are the arguments of its class."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    classes: int = Field(ge=2)
    train: int = Field(ge=1)
    test: int = Field(ge=1)
    channels: int = Field(default=3, ge=1)
    path: str | None = None
    mean: list[float] | None = None
    std: list[float] | None = None


def find_dataset(name: str, given: OwnDataset, *, sources: Sources) -> Source:
    """Read the source of an own dataset and check the arguments that a grid gives to its class.

    Args:
        name: as the grid has it.
        given: what the grid says of it.
        sources: the files of the grid's own parts.

    Raises:
        NotOwn: there is no such class, or an argument is unknown or missing.
    """
    wanted = name.rpartition(":")[2]
    if wanted in catalogue.datasets() or wanted == FOLDER:
        raise NotOwn(f"{wanted} is the name of a dataset of vtjobs. Rename the class")
    source = find(name, sources=sources, what="dataset", first=FIRST)
    keys = frozenset(OwnDataset.model_fields)
    if taken := sorted((source.arguments or frozenset()) & keys):
        raise NotOwn(
            f"{taken[0]} is a key of vtjobs, which the class does not get. Rename its argument"
        )
    source.check(frozenset(given.model_extra or {}), keys=keys)
    return source


def facts_of(given: OwnDataset, fingerprint: str) -> dict[str, Any]:
    """Return what a run's settings say of an own dataset beside its normalisation.

    Args:
        given: what the grid says of it.
        fingerprint: of its files, or `none`.
    """
    args: Given = dict(given.model_extra or {})
    return {
        "args": args,
        "channels": given.channels,
        "classes": given.classes,
        "fingerprint": fingerprint,
        "test": given.test,
        "train": given.train,
    }

"""The archives that datasets come in which vtjobs does not download."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any

from ..values import Value
from . import catalogue


class Kind(StrEnum):
    """What a file is."""

    UNPACK = "unpack"
    """An archive, or a file that is copied."""
    CLASSES = "classes"
    """A tar that has a tar of images for each class."""
    IMAGES = "images"
    """A tar of images whose classes stand in another archive."""


class Archive(Value, frozen=True, kw_only=True):
    """One file of a dataset, as its makers give it away."""

    file: str
    """Its name."""
    into: str
    """Where it goes, relative to the data folder."""
    md5: str | None = None
    """None: it is not known."""
    kind: Kind = Kind.UNPACK


class Source(Value, frozen=True, kw_only=True):
    """Where a dataset is to be had."""

    page: str
    archives: tuple[Archive, ...]
    sets: "Mapping[str, Source]"
    """Of its further evaluation sets, by their names."""

    def __str__(self) -> str:
        return f"{', '.join(archive.file for archive in self.archives)} from {self.page}"


@cache
def sources() -> dict[str, Source]:
    """Return dataset -> where it is to be had, for those that vtjobs does not download."""
    data = catalogue.archives()
    same = {name: found.get("same_as", name) for name, found in data.items()}
    for name, facts in catalogue.datasets().items():
        # A level has the images of its dataset.
        if facts.get("level_of") in data:
            same[name] = facts["level_of"]
    return {name: _source(data[other], _corrupted(other)) for name, other in same.items()}


def _corrupted(name: str) -> dict[str, Source]:
    """Return set -> the archive of its group, of the corruptions of a dataset."""
    given = catalogue.archives()[name].get("corruptions", {})
    found: dict[str, Source] = {}
    for group, sets in catalogue.corruption_groups(catalogue.datasets()[name]).items():
        archive = Archive(file=f"{group}.tar", into=given["into"])
        found |= dict.fromkeys(sets, Source(page=given["page"], archives=(archive,), sets={}))
    return found


def _source(data: dict[str, Any], more: Mapping[str, Source] = MappingProxyType({})) -> Source:
    archives = tuple(
        Archive(
            file=one["file"],
            into=one["into"],
            md5=one.get("md5"),
            kind=Kind(one.get("as", Kind.UNPACK)),
        )
        for one in data["archives"]
    )
    sets = {name: _source(one) for name, one in data.get("sets", {}).items()}
    return Source(page=data["page"], archives=archives, sets=sets | dict(more))

"""A run's frozen description and its name: a hash of all that decides the trained weights."""

import hashlib
import json
from functools import cache, lru_cache
from typing import Any, get_type_hints

from ..documents import Unfit, from_plain, to_plain
from ..values import Value, asdict
from .settings import CellSettings

# Raised when a change of ours changes results, so that old and new runs are not taken for the same.
NUMERICS = 3

STREAMS = ("init", "split", "order", "augment", "mix", "drop", "pair")

# The head that adds nothing.
BASELINE = "supervised"
# The axis of named sets of changes.
VARIANT = "variant"
# In place of a baseline: every head is compared with every other one.
EACH = "each"

RUN_ID_LENGTH = 16

Axes = dict[str, Any]
"""Name of an axis of a grid -> its value in a cell."""


# `json.dumps` makes an encoder for each call.
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def canonical(value: Any) -> str:
    """Write JSON in the one way that is hashed: sorted keys, no spaces, ASCII, no NaN."""
    return _CANONICAL.encode(value)


def digest(text: str, length: int = RUN_ID_LENGTH) -> str:
    """Return the first `length` hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def seeds_of(seed: int) -> dict[str, int]:
    """Return the seed of every stream where one seed moves them all."""
    return dict.fromkeys(STREAMS, seed)


@cache
def seeds_text(seed: int) -> str:
    """Return the canonical JSON of a seed that moves every stream."""
    return canonical(seeds_of(seed))


def seed_label(seeds: dict[str, int]) -> int | None:
    """Return the one seed of a run, or None where its streams vary apart."""
    values = set(seeds.values())
    return values.pop() if len(values) == 1 and not seeds.keys() - STREAMS else None


_PARTS = get_type_hints(CellSettings)


# Thousands of cells have few different parts, and each cell is read several times.
@lru_cache(maxsize=1 << 14)
def _part(kind: type[Any], text: str) -> Any:
    """Return a part of a cell that was written as JSON."""
    return from_plain(json.loads(text), kind)


class CellSpec(Value, frozen=True, kw_only=True):
    """What the runs of one cell share.

    The parts are canonical JSON, so that 100,000 runs hash fast.
    """

    backbone: str
    """Of a `BackboneSettings`."""
    dataset: str
    """Of a `DatasetSettings`."""
    head: str
    """Of a `HeadSettings`."""
    recipe: str
    """Of a `RecipeSettings`."""
    numerics: int = NUMERICS

    @classmethod
    def stored(cls, text: str) -> "CellSpec | None":
        """Return what `to_json` wrote; None of a cell whose runs were imported."""
        parts = json.loads(text)
        return None if parts is None else cls(**parts)

    @property
    def parts(self) -> dict[str, Any]:
        """The parts by name."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the parts as they are stored."""
        return canonical(self.parts)

    @property
    def settings(self) -> CellSettings:
        """The parts, read."""
        return CellSettings(
            **{name: _part(kind, getattr(self, name)) for name, kind in _PARTS.items()}
        )

    def text(self, *, seeds: str, init_from: str | None, head: str | None = None) -> str:
        """Return a run's canonical JSON; `seeds` is canonical JSON itself."""
        parent = "null" if init_from is None else json.dumps(init_from)
        return (
            f'{{"backbone":{self.backbone},"dataset":{self.dataset},"head":{head or self.head},'
            f'"init_from":{parent},"numerics":{self.numerics},"recipe":{self.recipe},"seeds":{seeds}}}'
        )

    def cell_id(self, parent_cell: str | None) -> str:
        """Name the cell: everything but the seeds."""
        return digest(self.text(seeds='"*"', init_from=parent_cell))

    def match_id(self, parent_match: str | None) -> str:
        """Name what the cell shares with its baseline: everything but seeds and heads."""
        return digest(self.text(seeds='"*"', init_from=parent_match, head='"*"'))


class RunSpec(
    CellSettings, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=True
):
    """One run.

    `parse(canonical JSON)` and `spec.canonical()` are each other's inverse.
    """

    seeds: dict[str, int]
    """Of each stream."""
    init_from: str | None
    """The run_id whose final weights this run starts from, or learns from where its head names
    `stage` as teacher.
    """
    numerics: int = NUMERICS

    @classmethod
    def parse(cls, text: str) -> "RunSpec":
        """Read a spec file.

        Raises:
            Unfit: the text is not the canonical JSON of a RunSpec.
        """
        try:
            spec = from_plain(json.loads(text), cls)
        except json.JSONDecodeError as error:
            raise Unfit(f"a run's description is no JSON: {error}") from None
        # A key that is not known here would be lost, and with it the run's name.
        if spec.canonical() != text:
            raise Unfit("a run's description is of a newer version of vtjobs, or damaged")
        return spec

    def canonical(self) -> str:
        """Return the JSON that the run is named by."""
        return canonical(to_plain(self))

    @property
    def learns_from_parent(self) -> bool:
        """Whether `init_from` names its teacher rather than the run its weights start from."""
        return self.head.learns_from_a_stage

    @property
    def run_id(self) -> str:
        return digest(self.canonical())

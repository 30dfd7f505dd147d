"""A run's frozen description and its name: a hash of all that decides the trained weights."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from typing import Any

# Raised when a change of ours changes results, so that old and new runs are not taken for the same.
NUMERICS = 1

STREAMS = ("init", "split", "order", "augment", "mix", "drop", "pair")

# The head that adds nothing.
BASELINE = "supervised"
# In place of a baseline: every head is compared with every other one.
EACH = "each"

RUN_ID_LENGTH = 16

# Fields of the recipe that came after the first ones, and what was the case before: at that value
# they are left out of the description, so that runs keep their names.
LATER: dict[str, Any] = {
    "repeats": 1,
    "loss": "cross_entropy",
    "bce_threshold": None,
    "drop_path_rule": "model",
}

# The teacher of a run that learns from an earlier stage's.
STAGE = "stage"


def canonical(value: Any) -> str:
    """Write JSON in the one way that is hashed: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def without_later(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe as it is described: the fields of `LATER` only where they say something."""
    return {
        name: value for name, value in recipe.items() if name not in LATER or value != LATER[name]
    }


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSpec:
    """What the runs of one cell share.

    The parts are canonical JSON, so that 100,000 runs hash fast.
    """

    backbone: str
    """{"args": {...}, "model": timm's name, "weights": {"sha256": ...} or null}."""
    dataset: str
    """{"args": {...}, "fingerprint": ..., "name": ...}."""
    head: str
    """{"name": ..., "params": {...}}."""
    recipe: str
    numerics: int = NUMERICS

    def text(self, *, seeds: str, init_from: str | None, head: str | None = None) -> str:
        """Return a run's canonical JSON; `seeds` is canonical JSON itself."""
        parent = json.dumps(init_from)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run as plain data.

    `parse(canonical JSON)` and `canonical(spec)` are each other's inverse.
    """

    backbone: dict[str, Any]
    dataset: dict[str, Any]
    head: dict[str, Any]
    recipe: dict[str, Any]
    seeds: dict[str, int]
    init_from: str | None
    """The run_id whose final weights this run starts from, or learns from where its head names
    `stage` as teacher.
    """
    numerics: int = NUMERICS

    @classmethod
    def parse(cls, text: str) -> "RunSpec":
        """Read a spec file.

        Raises:
            ValueError: the text is not the canonical JSON of a RunSpec.
        """
        data = json.loads(text)
        if not isinstance(data, dict) or set(data) != {*cls.__slots__}:
            raise ValueError("not a run's description")
        return cls(**{**data, "recipe": LATER | data["recipe"]})

    def canonical(self) -> str:
        """Return the JSON that the run is named by."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return canonical(values | {"recipe": without_later(self.recipe)})

    @property
    def learns_from_parent(self) -> bool:
        """Whether `init_from` names its teacher rather than the run its weights start from."""
        mine = self.head["name"] == "distill" and "source" not in self.head
        return mine and bool(self.head["params"].get("teacher") == STAGE)

    @property
    def run_id(self) -> str:
        return digest(self.canonical())

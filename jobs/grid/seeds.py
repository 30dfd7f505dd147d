"""What a grid file says about seeds.

One that moves every stream of randomness, or streams that vary apart.
"""

import math
from collections import Counter
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from ..run import design
from ..run.design import Design
from ..run.spec import STREAMS
from ..validation import is_plain_number

MAX_SEED = 2**32 - 1
MAX_SEEDS = 1_000_000
# Of one cell in a study; far more than anybody pays for.
MAX_RUNS = 10_000


def _seeds(value: object) -> list[int]:
    """Return the seeds that a grid file means by a count, a list or a range."""
    match value:
        case bool() | float():
            raise ValueError(f"a count of seeds is a whole number, got {str(value).lower()}")
        case str():
            raise ValueError(_plain_form(value))
        case int():
            if not 1 <= value <= MAX_SEEDS:
                raise ValueError(f"a count of seeds is 1…{MAX_SEEDS:,}, got {value}")
            return list(range(value))
        case dict():
            return _listed(_range(value))
        case list() if value:
            return _listed(value)
    raise ValueError("a count, a list of seeds, or {range: [first, end]}")


def _plain_form(text: str) -> str:
    """Return how to write what somebody wrote as text, such as 0..4."""
    low, dots, high = text.partition("..")
    if not dots and is_plain_number(text):
        return f"remove the quotes, write {text}"
    if not dots:
        return f"write plain decimal numbers, got {text}"
    if high.isascii() and high.isdigit() and len(high) < 10:
        return f"write [{low}, …, {high}] or {{range: [{low}, {int(high) + 1}]}}"
    return "write a list"


def _range(value: dict[str, object]) -> list[int]:
    bounds = value.get("range")
    is_pair = isinstance(bounds, list) and [type(part) for part in bounds] == [int, int]
    if set(value) != {"range"} or not is_pair:
        raise ValueError("write {range: [first, end]}; end is not included")
    assert isinstance(bounds, list)
    first, end = bounds
    if end - first > MAX_SEEDS:
        raise ValueError(f"at most {MAX_SEEDS:,} seeds, got {end - first:,}")
    if end <= first:
        raise ValueError("a count, a list of seeds, or {range: [first, end]}")
    return list(range(first, end))


def _listed(seeds: list[int]) -> list[int]:
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
            plain = "write plain decimal numbers, " if isinstance(seed, str) else ""
            raise ValueError(f"whole number 0…{MAX_SEED}, {plain}got {seed}")
    if len(set(seeds)) < len(seeds):
        twice = min(seed for seed, times in Counter(seeds).items() if times > 1)
        raise ValueError(f"{twice} listed twice (would create duplicate runs)")
    return seeds


Seeds = Annotated[
    list[int],
    BeforeValidator(_seeds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "array", "items": {"type": "integer"}},
            ]
        }
    ),
]
Stream = Annotated[str, Field(pattern=f"^({'|'.join(STREAMS)})$")]
StreamSeed = Annotated[int, Field(ge=0, le=MAX_SEED)]


class Variance(BaseModel):
    """Study of the variance over seeds: streams of randomness are varied separately."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    design: Annotated[Design, Field(strict=False)] = Field(
        description="how the values of the streams are combined",
    )
    vary: dict[Stream, Seeds] = Field(
        default_factory=dict,
        description="values of each varied stream, in the form of `seeds`; other streams are fixed",
    )
    hold: dict[Stream, StreamSeed] = Field(
        default_factory=dict,
        description="value of each fixed stream; default: 0",
    )
    ride: list[Stream] = Field(
        default_factory=list,
        description="streams that take a new value with every combination",
    )
    repeat: int = Field(
        1,
        ge=1,
        le=100,
        description=(
            "runs per combination (one-at-a-time: of the base point), "
            "which differ only by the nondeterminism of the hardware"
        ),
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.design is Design.TOGETHER:
            if self.model_fields_set - {"design"}:
                raise ValueError(
                    "together: `seeds` sets every stream. Remove the other keys of variance"
                )
            return self
        self._names_each_stream_once()
        levels = {name: len(values) for name, values in self.vary.items()}
        self._varies_enough(levels)
        if self.count > MAX_RUNS:
            raise ValueError(f"{self.count:,} runs per cell, at most {MAX_RUNS:,} are allowed")
        if self.design is Design.ORTHOGONAL:
            self._orthogonal(levels)
        return self

    def _names_each_stream_once(self) -> None:
        named = Counter([*self.vary, *self.hold, *self.ride])
        if twice := [name for name in STREAMS if named[name] > 1]:
            raise ValueError(f"{', '.join(twice)}: list a stream once, under vary, hold or ride")

    def _varies_enough(self, levels: dict[str, int]) -> None:
        if few := [name for name, count in levels.items() if count < 2]:
            raise ValueError(f"vary {', '.join(few)}: needs at least two values, got one")
        if self.design is not Design.ONE_AT_A_TIME:
            if len(levels) < 2:
                raise ValueError(f"{self.design}: vary at least two streams")
            return
        if not levels:
            raise ValueError("one-at-a-time: vary at least one stream")
        if self.ride:
            raise ValueError("one-at-a-time: streams that do not vary are held fixed. Remove ride")

    def _orthogonal(self, levels: dict[str, int]) -> None:
        counts = set(levels.values())
        if len(counts) > 1:
            raise ValueError(
                f"orthogonal: every stream needs the same number of values, got {levels}"
            )
        (count,) = counts
        if not design.is_prime(count):
            next_prime = next(
                number for number in range(count, 2 * count) if design.is_prime(number)
            )
            raise ValueError(
                f"orthogonal: needs a prime number of values, got {count}. Give each stream"
                f" {next_prime}"
            )
        if len(levels) > count:
            raise ValueError(
                f"orthogonal: {count} values allow up to {count} streams (the rest estimates the "
                f"residual), got {len(levels)}"
            )

    @property
    def count(self) -> int:
        """How many runs the design gives each cell."""
        levels = [len(values) for values in self.vary.values()]
        if self.design is Design.ONE_AT_A_TIME:
            together = min(levels) if len(levels) > 1 else 0
            return self.repeat + sum(level - 1 for level in levels) + together
        return self.repeat * (
            math.prod(levels) if self.design is Design.CROSSED else levels[0] ** 2
        )

    def rows(self) -> list[dict[str, int]]:
        """Return the runs of each cell as stream -> value; empty where one seed moves them all."""
        if self.design is Design.TOGETHER:
            return []
        return design.rows(
            self.design, self.vary, hold=self.hold, ride=self.ride, repeat=self.repeat
        )

"""The one grammar that names runs in every command.

all                          every run
3f2a91                       a run id or a prefix of one (at least 4 digits)
quickstart                   a grid's name or id (a built-in grid's or a file's name works too)
backbone=swin_t seed!=3      conditions; several values are separated by commas; all must hold
train.lr=1e-3                the same on an axis of a grid; numbers are compared as numbers
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from ..errors import BadInput, suggest
from ..names import RUN_ID_PREFIX, name_problem
from ..values import Value, changed
from .states import RunState

# Longer ones do not fit a database's integer, and no grid takes them.
_SEED = re.compile(r"[0-9]{1,10}\Z")
FIELDS = (
    "grid",
    "backbone",
    "dataset",
    "head",
    "recipe",
    "stage",
    "seed",
    "state",
    "status",
    "run",
    "cell",
    "user",
    "tag",
)
# How runs are shown in words that are no states, and what to select instead.
_SHOWN = {
    "held": "a pending or queued run on hold. Select state=pending,queued",
    "cancelling": "a run that is being cancelled. Select state=queued,running",
    "unknown": "a running run without a sign of life. Select state=running",
}


class Condition(Value, frozen=True, kw_only=True):
    """`field` has (or has not) one of `values`."""

    field: str
    values: tuple[str, ...]
    negated: bool = False

    @property
    def word(self) -> str:
        """The condition as it is written on a command line."""
        return f"{self.field}{'!=' if self.negated else '='}{','.join(self.values)}"


class Selection(Value, frozen=True, kw_only=True):
    """A union of run id prefixes and grid names, narrowed by conditions.

    Everything where both are empty.
    """

    everything: bool = False
    prefixes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Words that may be grid names or run id prefixes; the ledger knows which."""
    conditions: tuple[Condition, ...] = ()

    def narrowed(self, field: str, *values: str, negated: bool = False) -> "Selection":
        """Return those of the runs that also have (or have not) one of these values."""
        more = Condition(field=field, values=values, negated=negated)
        return changed(self, conditions=(*self.conditions, more))


def parse_selection(words: Sequence[str], *, default_all: bool = False) -> Selection:
    """Read a selection from the words of a command line.

    Raises:
        BadInput: a word cannot be read, or there is none and the command needs one.
    """
    names: list[str] = []
    conditions: list[Condition] = []
    everything = not words and default_all
    for word in words:
        if word == "all":
            everything = True
        elif "=" in word:
            conditions.append(_condition(word))
        elif RUN_ID_PREFIX.match(word) or not name_problem(word):
            names.append(word)
        else:
            raise BadInput(
                f"cannot read {word!r} as a run, a grid or a condition such as backbone=swin_t"
            )
    if not (words or default_all):
        raise BadInput(
            "say which runs: all, a run id, a grid's name, or conditions such as grid=quickstart"
            " seed!=3"
        )
    if conditions and not names:
        everything = True
    return Selection(everything=everything, names=tuple(names), conditions=tuple(conditions))


def axis_text(value: Any) -> str:
    """Return an axis's value as a condition writes it: numbers, true, null and lists as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _condition(word: str) -> Condition:
    field, _, value = word.partition("=")
    negated = field.endswith("!")
    field = field.rstrip("!")
    if not field:
        # Any other field may be an axis: only the ledger knows those.
        raise BadInput(f"{word}: unknown field ''. Fields: {', '.join(FIELDS)}")
    values = tuple(part for part in _split(value) if part)
    if not values:
        raise BadInput(f"{word}: a value is missing after '='")
    if field in ("state", "status"):
        field = "state"
        for part in values:
            _check_state(word, part)
    if field == "seed" and not all(_SEED.match(part) for part in values):
        raise BadInput(f"{word}: seeds are whole numbers of at most ten digits")
    return Condition(field=field, values=values, negated=negated)


def _check_state(word: str, state: str) -> None:
    if state in _SHOWN:
        raise BadInput(f"{word}: {state} is shown for {_SHOWN[state]}")
    if state not in set(RunState):
        raise BadInput(f"{word}: no state {state!r}. {suggest(state, RunState)}")


def _split(value: str) -> list[str]:
    """Split at commas, but not at those in brackets: `drloc(weight=0.5,mode=l1)`, `[0.9,0.99]`."""
    parts, depth = [""], 0
    for sign in value:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts

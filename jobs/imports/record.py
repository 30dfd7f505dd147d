"""What every reader makes of a file: records, each a line of a table."""

from pathlib import Path

from ..values import Value

Scalar = str | float | int
"""Text as the file has it, or a number."""


class Record(Value, frozen=True, kw_only=True):
    """What a file says at one place: of a run, or of a run at one epoch."""

    where: str
    """The place, such as `results.csv:4` or the folder of a run."""
    source: Path
    """The file, or the folder, that it was read from."""
    values: dict[str, Scalar]
    """Column -> value. What is empty is left out."""
    epoch: int | None = None
    """At which it was logged, where the form counts steps."""

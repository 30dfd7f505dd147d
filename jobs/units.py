"""Numbers, times, durations and sizes as people write them."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

_SUFFIX_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MOST_DIGITS = 40
MOST_S = 10_000 * 86400
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])\Z", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d{1,3}):(\d{2}):(\d{2})\Z", re.ASCII)


def parse_duration_s(value: object) -> int:
    """Read `90s`, `10m`, `12h`, `2d`, `24:00:00` or `1-12:00:00` as whole seconds.

    Raises:
        ValueError: with a sentence for the user; a bare number is refused as ambiguous.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError('expected a duration such as 12h, 30m or "24:00:00"')
    if isinstance(value, int | float):
        raise ValueError(f'{value} is ambiguous, write a unit: {value}s, {value}m or "24:00:00"')
    text = value.strip()
    if len(text) > MOST_DIGITS:
        raise ValueError(f"cannot read {text[:MOST_DIGITS]}… as a duration: too long")
    if match := _DURATION.match(text):
        seconds = math.ceil(float(match[1]) * _SUFFIX_S[match[2]])
    elif match := _CLOCK.match(text):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    else:
        raise ValueError(f'cannot read {text!r} as a duration; write 12h, 30m or "24:00:00"')
    if not 0 < seconds <= MOST_S:
        raise ValueError("must be longer than 0 s and at most 10,000 days")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds as `45s`, `3m10s`, `2h05m` or `3d04h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def iso(at: float | None) -> str | None:
    """Write seconds since 1970 as ISO 8601 in UTC."""
    return (
        datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        if at
        else None
    )


def seconds_of(text: str) -> float:
    """Return what `iso` wrote as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending whole numbers as `0-4, 7, 9, 10`: three or more in a row are a range."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(
        f"{row[0]}-{row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows
    )


def format_range(low_s: float, high_s: float) -> str:
    """Write a range of seconds in one unit: `12–16 min`; `12 min` where both ends agree."""
    bounds = ((120, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h"), (math.inf, 86400, "d"))
    size, unit = next((size, unit) for most, size, unit in bounds if high_s < most)
    # Tenths where a whole unit is much.
    digits = 1 if size > 60 and high_s < 10 * size else 0
    low, high = (f"{max(seconds / size, 10**-digits):.{digits}f}" for seconds in (low_s, high_s))
    return f"{high} {unit}" if low == high else f"{low}–{high} {unit}"


def format_bytes(count: float) -> str:
    """Write a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def plural(count: int, word: str) -> str:
    """Write a number of things: `1 run`, `12 runs`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"

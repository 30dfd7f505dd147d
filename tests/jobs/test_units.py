"""Durations and sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.units import format_bytes, format_duration, format_range, parse_duration_s, plural


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("10m", 600), ("12h", 43200), ("2d", 172800), ("1.5h", 5400), ("0.5s", 1),
        ("24:00:00", 86400), ("1-12:00:00", 129600), ("00:00:01", 1), (" 3 m ", 180),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_people_write_it(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [
        (0, 0, "1 s"), (3, 5.4, "3–5 s"), (45, 119, "45–119 s"), (90, 200, "2–3 min"),
        (720, 960, "12–16 min"), (730, 740, "12 min"), (6000, 9000, "1.7–2.5 h"),
        (40_000, 50_000, "11–14 h"), (100_000, 200_000, "1.2–2.3 d"), (8e5, 2e6, "9–23 d"),
    ],
)  # fmt: skip
def test_a_range_of_time_has_one_unit_and_one_figure_where_both_ends_agree(
    low_s: float, high_s: float, text: str
) -> None:
    assert format_range(low_s, high_s) == text


@pytest.mark.parametrize(
    "value",
    [
        86400,
        1.5,
        True,
        None,
        [],
        {},
        "",
        "12",
        "h",
        "-1h",
        "1h30m",
        "0s",
        "00:00:00",
        "١h",
        "1:2:3",
    ],
)
def test_what_is_ambiguous_or_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        parse_duration_s(value)


def test_a_bare_number_is_told_its_readings() -> None:
    with pytest.raises(
        ValueError, match='86400 is ambiguous, write a unit: 86400s, 86400m or "24:00:00"'
    ):
        parse_duration_s(86400)


@given(st.integers(0, 10**7))
def test_a_duration_is_shown_within_a_hundredth_or_a_minute(seconds: int) -> None:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    total, digits = 0, ""
    for letter in format_duration(seconds):
        if letter.isdigit():
            digits += letter
        else:
            total, digits = total + int(digits) * units[letter], ""
    assert total <= seconds
    assert seconds - total < max(60, seconds / 24)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2**50, "1024.0 TiB")]
)
def test_a_size_has_a_binary_unit(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_one_thing_has_no_s() -> None:
    assert (plural(0, "run"), plural(1, "run"), plural(12, "run")) == ("0 runs", "1 run", "12 runs")

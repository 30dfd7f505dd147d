"""CSV that a spreadsheet can open without harm."""

import csv
import io

import pytest

from vtjobs.analysis.output.csv_text import csv_text


def cell(value: object) -> str:
    """Return a value as a reader of the file finds it."""
    (_, (found, _)) = csv.reader(io.StringIO(csv_text(["a", "b"], [[value, 1]])))
    return found


@pytest.mark.parametrize(
    "text",
    ["=HYPERLINK(1)", "+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", "-", "= 1 2"],
)
def test_a_text_that_a_spreadsheet_would_compute_stands_behind_an_apostrophe(text: str) -> None:
    assert cell(text).startswith("'")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(-1.5, "-1.5"), (3, "3"), ("-1.5", "-1.5"), ("-0.25 +1e-05", "-0.25 +1e-05"), ("a=b", "a=b")],
)
def test_numbers_and_other_texts_stay_as_they_are(value: object, shown: str) -> None:
    assert cell(value) == shown


def test_a_heading_is_a_text_too() -> None:
    assert csv_text(["=1+1"], []) == "'=1+1\n"


def test_a_cell_has_no_control_character() -> None:
    assert cell("a\x1bc\u202e\r\n=b") == "a�c��\n=b"

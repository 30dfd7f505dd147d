"""The allow-list of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.names import name_problem, one_line, printable


@pytest.mark.parametrize("name", ["a", "small-data", "v1.2_x", "0", "A" * 64])
def test_a_plain_name_is_allowed(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../../etc", "/abs", "a/b", "-rf", "a b", "a\n", "\n", "%j", "{}", "[/red]", "a;b", "$(x)", "`x`",
     "a'b", 'a"b', "a\\b", "\x1b[31m", "é", "аdmin", "😀", "٣", "a" * 65, "a" * 300, "a\0"],
)  # fmt: skip
def test_a_name_that_something_else_would_read_differently_is_refused(name: str) -> None:
    assert name_problem(name)


@given(st.text(max_size=80))
def test_an_allowed_name_is_short_ascii_and_safe_in_a_path(name: str) -> None:
    if not name_problem(name):
        assert name.isascii() and 0 < len(name) <= 64
        assert not set(name) & set("/\\ \n\t'\"$`;&|<>*?[]{}()!%~#=\0")
        assert name[0] not in ".-_"


@given(st.text())
def test_printable_text_moves_no_cursor(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert not any(
        (ord(letter) < 32 and letter not in "\t\n") or 0x7F <= ord(letter) < 0xA0
        for letter in shown
    )


@pytest.mark.parametrize(
    "letter", [*"\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ud800\udfff"]
)
def test_printable_text_neither_turns_the_direction_of_writing_nor_breaks_a_line(
    letter: str,
) -> None:
    assert printable(f"a{letter}b") == "a�b"


def test_a_cell_of_a_table_is_one_line() -> None:
    assert one_line("a\n\tb\x1bc") == "a b�c"

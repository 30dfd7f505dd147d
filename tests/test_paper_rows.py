"""What the papers describe is told row by row, with the tests that hold it."""

from .support import paper_rows


def test_the_page_is_made_from_the_rows_and_the_tests_that_name_them() -> None:
    made = "make it anew: python -m tests.support.paper_rows"
    assert paper_rows.PAGE.read_text("utf-8") == paper_rows.page(), made


def test_tests_name_rows_that_there_are() -> None:
    assert paper_rows.tests_of().keys() <= paper_rows.rows().keys()


def test_a_row_that_is_said_to_be_here_has_a_test() -> None:
    here = {name for name, row in paper_rows.rows().items() if row.state != "partly"}
    assert here - paper_rows.tests_of().keys() == set()


def test_a_row_that_is_not_here_as_a_whole_says_what_is_missing() -> None:
    rows = paper_rows.rows().values()
    assert [row.name for row in rows if row.state != "whole" and not row.lacks] == []


def test_nothing_that_small_datasets_need_is_missing() -> None:
    counts = paper_rows.counts()
    assert counts["core"]["partly"] == 0 and counts["wide"]["partly"] <= 4

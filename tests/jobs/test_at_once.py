"""Several folders at a time."""

from threading import Barrier

import pytest

from vtjobs.jobs.at_once import at_once


def test_results_come_in_the_order_of_the_items() -> None:
    assert at_once(lambda number: number * number, range(100)) == [n * n for n in range(100)]
    assert at_once(str, [1]) == ["1"]
    assert at_once(str, []) == []


def test_items_are_worked_on_at_the_same_time() -> None:
    barrier = Barrier(4, timeout=10)
    # Each waits for the other three: one after the other would end in an error.
    assert len(at_once(lambda _: barrier.wait(), range(4))) == 4


def test_an_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        at_once(lambda number: 1 / number, [1, 0])

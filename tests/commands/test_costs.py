"""How the overhead of a head is printed."""

import pytest

from vtjobs.commands.printing.costs import _overhead


# DRLoc, table 14: the loss takes 1.8 % of Swin's time and 2.4 % of T2T's.
@pytest.mark.paper("VA-19")
@pytest.mark.parametrize(
    ("ratio", "text"), [(1.018, "+1.8 %"), (1.024, "+2.4 %"), (1.0, "+0.0 %"), (None, "-")]
)
def test_the_overhead_of_a_head_is_told_in_percent(ratio: float | None, text: str) -> None:
    assert _overhead(ratio) == text

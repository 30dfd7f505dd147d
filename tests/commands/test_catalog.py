"""How the measured cost of a backbone is printed."""

import pytest

from vtjobs.commands.catalog import _cost
from vtjobs.jobs.run.cost import Cost


@pytest.mark.parametrize(("speed", "shown"), [(12_345.6, "12,346 ± 1,235"), (10.94, "10.9 ± 1.1")])
def test_a_speed_is_never_printed_with_an_exponent(speed: float, shown: str) -> None:
    cost = Cost(
        backbone="vit", parameters=1, multiply_adds=1, batch=8, image_size=16, precision="fp32",
        pass_="inference", repeats=3, images_per_second=speed, seconds=1.0, seconds_std=0.1,
        peak_memory_bytes=None, device="CPU", software={},
    )  # fmt: skip
    assert shown in _cost(cost)

"""How the measured cost of a backbone is printed."""

import pytest

from vtjobs.commands.catalog import _cost, _printed
from vtjobs.jobs.documents import changed
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.catalogue import printed_cost
from vtjobs.jobs.run.cost import Cost

COST = Cost(
    backbone="deit_s", parameters=1, multiply_adds=1, batch=8, image_size=224, precision="fp32",
    pass_="inference", repeats=3, images_per_second=189.1, seconds=1.0, seconds_std=0.1,
    peak_memory_bytes=None, device="CPU", software={},
)  # fmt: skip


@pytest.mark.parametrize(("speed", "shown"), [(12_345.6, "12,346 ± 1,235"), (10.94, "10.9 ± 1.1")])
def test_a_speed_is_never_printed_with_an_exponent(speed: float, shown: str) -> None:
    assert shown in _cost(changed(COST, images_per_second=speed))


def test_a_papers_speed_stands_beside_ours_with_its_device() -> None:
    cost = changed(COST, printed=printed_cost(COST))
    assert _printed(cost) == (
        "deit_s in the thesis, tables 5.1 and 6.7: 1,891 images/s and 987 MiB at inference on a V100"
        " 32 GB, batch 256, fp16; here ×0.1"
    )


def test_training_is_not_held_against_inference() -> None:
    printed = printed_cost(changed(COST, pass_="training"))
    assert printed is not None and printed.speed_ratio is None


@pytest.mark.parametrize("changes", [{"image_size": 96}, {"backbone": "vit_mini"}])
def test_nothing_is_printed_of_what_no_table_has(changes: dict[str, object]) -> None:
    assert printed_cost(changed(COST, **changes)) is None


def test_every_model_with_a_printed_speed_is_one_that_can_be_measured() -> None:
    import timm

    models = catalogue._document("complexity.yaml").data["models"]
    known = {*catalogue.backbones(), *timm.list_models()}
    assert models.keys() <= known

"""How the measured cost of a backbone is printed."""

import pytest

from vtjobs.commands.catalog import _cost, _print_costs, _printed
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.catalogue import printed_cost
from vtjobs.jobs.run.cost import Cost
from vtjobs.jobs.values import changed

COST = Cost(
    backbone="deit_s", parameters=1, multiply_adds=1, batch=8, image_size=224, precision="fp32",
    pass_="inference", repeats=3, images_per_second=189.1, seconds=1.0, seconds_std=0.1,
    peak_memory_bytes=None, device="CPU", software={},
)  # fmt: skip


@pytest.mark.parametrize(("speed", "shown"), [(12_345.6, "12,346 ± 1,235"), (10.94, "10.9 ± 1.1")])
def test_a_speed_is_never_printed_with_an_exponent(speed: float, shown: str) -> None:
    assert shown in _cost(changed(COST, images_per_second=speed))


@pytest.mark.paper("PC-13", "D3-16", "OR-11")
@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        (
            {"batch": 256, "precision": "fp16", "device": "H100", "peak_memory_bytes": 987 * 2**20},
            "deit_s in the thesis, tables 5.1, 5.2, 6.7 and 6.8: 1,891 images/s and 987 MiB at"
            " inference on a V100 32 GB, batch 256, fp16; here, on H100: speed ×0.1, memory ×1",
        ),
        (
            {"batch": 32, "images_per_second": 94.04},
            "deit_s in the thesis, table 4.1: 940 images/s and 217 MiB at inference on a V100 32 GB,"
            " batch 32; here, on CPU: speed ×0.1",
        ),
        (
            {"batch": 900, "largest_batch": True, "images_per_second": 94.04},
            "deit_s in the thesis, table 3.5: 940 images/s at inference on a V100 16 GB, the largest"
            " batch that fits; here, on CPU: speed ×0.1",
        ),
    ],
)
def test_each_published_condition_has_its_own_printed_speed_and_both_devices_are_named(
    conditions: dict[str, object], text: str
) -> None:
    cost = changed(COST, **conditions)
    assert _printed(changed(cost, printed=printed_cost(cost))) == text


@pytest.mark.paper("OR-11")
@pytest.mark.parametrize(
    ("conditions", "differs"),
    [
        ({"pass_": "training", "batch": 256, "precision": "fp16"}, ["pass"]),
        ({}, ["batch"]),
        ({"backbone": "deit3_s"}, ["batch", "precision"]),
        ({"batch": 256}, ["precision"]),
        ({"batch": 900, "precision": "fp16"}, ["batch"]),
    ],
)
def test_a_measurement_under_other_conditions_has_no_ratio(
    conditions: dict[str, object], differs: list[str]
) -> None:
    cost = changed(COST, **conditions)
    printed = printed_cost(cost)
    assert printed is not None and printed.differs == differs
    assert printed.speed_ratio is None and printed.memory_ratio is None
    told = f"not comparable: other {' and '.join(differs)}"
    assert _printed(changed(cost, printed=printed)).endswith(told)


@pytest.mark.parametrize("changes", [{"image_size": 96}, {"backbone": "vit_mini"}])
def test_nothing_is_printed_of_what_no_table_has(changes: dict[str, object]) -> None:
    assert printed_cost(changed(COST, **changes)) is None


@pytest.mark.paper("DE-16")
def test_the_device_and_the_precision_stand_below_what_was_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print_costs([changed(COST, device="CPU, 2 threads", software={"torch": "2.6", "timm": "1.0"})])
    told = capsys.readouterr().err
    assert "inference, fp32, mean of 3 passes; CPU, 2 threads; torch 2.6, timm 1.0" in told


@pytest.mark.paper("D3-16")
def test_every_model_with_a_printed_speed_is_one_that_can_be_measured() -> None:
    import timm

    tables = catalogue._document("complexity.yaml").data["tables"]
    known = {*catalogue.backbones(), *timm.list_models()}
    assert {name for table in tables for name in table["models"]} <= known

"""Which precisions the GPUs of a grid can do, and what is said about faster ones."""

import pytest

from vtjobs.jobs.grid.load import take_in_document
from vtjobs.jobs.strict_yaml import parse
from vtjobs.jobs.workspace.allocation import Shape
from vtjobs.jobs.workspace.stored_grid import freeze
from vtjobs.orchestrator.requests.precision import (
    augments_on_cpu,
    capability_of,
    check_precision,
    faster,
    slow_on_cpu,
)
from vtjobs.orchestrator.requests.submit import _precision

GRID = """name: one
backbones: [swin_t]
datasets: [cifar10]
heads: [supervised]
seeds: 1
recipe: drloc-scratch
train: {{precision: {precision}}}
"""


@pytest.mark.parametrize(
    ("kind", "capability"),
    [
        ("v100", 7.0), ("V100", 7.0), ("tesla_v100-sxm2-32gb", 7.0), ("v100l", 7.0), ("a100", 8.0),
        ("nvidia_a100-sxm4-80gb", 8.0), ("a100_1g.5gb", 8.0), ("a10", 8.6), ("a10g", 8.6), ("h100", 9.0),
        ("rtx3090", 8.6), ("geforce_rtx_2080_ti", 7.5), ("l4", 8.9), ("l40s", 8.9), ("gh200", 9.0),
        ("gpu", None), ("mi250", None), ("a1000", None), ("xl4", None),
    ],
)  # fmt: skip
def test_the_kind_of_a_gpu_says_what_it_can_do(kind: str, capability: float | None) -> None:
    assert capability_of(kind) == capability


def test_bf16_is_refused_on_gpus_that_cannot_do_it() -> None:
    found = check_precision("bf16", 7.0)
    assert found is not None and found.fix == "Use precision: fp16"
    assert check_precision("bf16", 8.0) is None
    assert check_precision("fp16", 7.0) is None
    assert check_precision("bf16", None) is None


@pytest.mark.parametrize(("capability", "precision"), [(7.0, "fp16"), (7.5, "fp16"), (9.0, "bf16")])
def test_where_fp32_wastes_tensor_cores_what_is_faster_is_named(
    capability: float, precision: str
) -> None:
    found = faster("fp32", capability, "deit")
    assert "recipe: deit-fast" in found and f"train.precision: {precision}" in found
    assert "-fast" not in faster("fp32", capability, "")


@pytest.mark.parametrize(
    ("precision", "capability"), [("fp32", 6.1), ("fp32", None), ("fp16", 7.0)]
)
def test_nothing_is_said_where_nothing_is_faster(precision: str, capability: float | None) -> None:
    assert faster(precision, capability, "deit") == ""


def test_half_precision_on_a_cpu_is_warned_of() -> None:
    assert "train.precision: fp32" in slow_on_cpu("fp16", 0)
    assert slow_on_cpu("fp32", 0) == slow_on_cpu("fp16", 1) == ""


def test_augmenting_on_the_device_without_a_gpu_is_warned_of() -> None:
    assert "pipeline: pil takes about half the time" in augments_on_cpu("hybrid", None, 0)
    assert augments_on_cpu("tensor", "rand-m9-mstd0.5-inc1", 0)
    assert augments_on_cpu("hybrid", None, 1) == augments_on_cpu("tensor", None, 0) == ""
    assert augments_on_cpu("pil", "rand-m9-mstd0.5-inc1", 0) == ""


@pytest.mark.parametrize(
    ("kind", "precision", "problems", "hints"),
    [("v100", "bf16", 1, 0), ("v100", "fp32", 0, 1), ("a100", "bf16", 0, 0), (None, "fp32", 0, 0)],
)
def test_on_a_cluster_the_kind_of_gpu_that_the_grid_names_counts(
    kind: str | None, precision: str, problems: int, hints: int
) -> None:
    document = parse(GRID.format(precision=precision).encode(), file="grid.yaml")
    intake = take_in_document(document)
    shape = Shape(
        backend="slurm", nodes=1, ranks=1, gpus=1, gpu=kind, threads=1, walltime_s=None, lead_s=60,
        checkpoint_every_s=600, evaluate_every=1, sets=(),
    )  # fmt: skip
    frozen = freeze(intake.grid, intake.expansion, at=0.0)
    refused, said = _precision(shape, frozen, intake.document)
    assert (len(refused), len(said)) == (problems, hints)
    assert all((one.line, one.key) == (7, "train.precision") for one in refused)

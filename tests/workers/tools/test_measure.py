"""What a backbone costs.

The papers' own numbers of parameters and FLOPs, and the search for the largest batch.
"""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.cost import memory_line
from vtjobs.workers.tools.measure import largest, measure

from ...support.training import CPU


# Parameters (exact) and FLOPs (billions, as printed): thesis, tables 3.1, 3.15, 4.1 and 5.1; He et
# al. 2016.
@pytest.mark.paper("DR-30", "DE-01", "CA-09", "RM-12", "PC-04", "D3-09", "D3-16")
@pytest.mark.parametrize(
    ("name", "parameters", "flops"),
    [
        ("deit_ti", 5_717_416, 1.3),
        ("deit_s", 22_050_664, 4.6),
        ("vit_base_patch16_224", 86_567_656, 17.6),
        ("resnet50", 25_557_032, 4.1),
        # Section 5.3.4 of the thesis prints 4.6 GFLOPs, and no parameters.
        ("resnet50_attention", 67_534_888, 4.6),
        ("cait_xxs24", 11_956_264, 2.5),
        ("resmlp_s12", 15_350_872, 3.0),
        ("patchconvnet_s60", 25_231_096, 4.0),
    ],
)
def test_a_backbone_has_the_published_parameters_and_flops(
    name: str, parameters: int, flops: float
) -> None:
    found = measure(
        name,
        batch=1,
        image_size=224,
        classes=1000,
        precision="fp32",
        repeats=1,
        training=False,
        device=CPU,
    )
    assert found.parameters == parameters
    assert round(found.multiply_adds / 1e9, 1) == pytest.approx(flops, abs=0.11)


# Tokens of a patch of 16 pixels at the sizes of thesis, section 6.3.3, of RelViT's models (table 1
# without the class token), and places of a ResNet's last map.
@pytest.mark.paper("PC-13", "D3-07", "OR-10")
@pytest.mark.parametrize(
    ("name", "image_size", "tokens"),
    [
        ("deit_ti", 144, 81),
        ("deit_ti", 160, 100),
        ("deit_ti", 224, 196),
        ("deit_ti", 256, 256),
        ("resnet18_cifar", 32, 16),
        ("vit_s4", 32, 64),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_tokens_of_an_image_size_are_counted(
    name: str, image_size: int, tokens: int, precision: str
) -> None:
    found = measure(
        name,
        batch=1,
        image_size=image_size,
        classes=10,
        precision=precision,
        repeats=1,
        training=False,
        device=CPU,
    )
    assert (found.tokens, found.precision, found.largest_batch) == (tokens, precision, False)


@pytest.mark.paper("DE-01")
def test_attention_counts_as_its_two_matrix_products_whatever_kernel_runs() -> None:
    found = measure(
        "deit_ti",
        batch=1,
        image_size=224,
        classes=1000,
        precision="fp32",
        repeats=1,
        training=False,
        device=CPU,
    )
    tokens, width, depth = 197, 192, 12
    attention = 2 * tokens * tokens * width
    block = 12 * tokens * width * width + attention
    patches, classifier = 196 * 16 * 16 * 3 * width, width * 1000
    assert found.multiply_adds == depth * block + patches + classifier


@pytest.mark.paper("DE-16", "RM-12", "PC-13")
@pytest.mark.parametrize("training", [False, True])
def test_speed_is_images_over_the_mean_of_the_timed_passes(training: bool) -> None:
    torch.manual_seed(0)
    found = measure(
        "vit_mini",
        batch=4,
        image_size=16,
        classes=10,
        precision="fp32",
        repeats=5,
        training=training,
        device=CPU,
    )
    assert found.images_per_second == pytest.approx(4 / found.seconds)
    assert found.seconds_std >= 0
    assert found.peak_memory_bytes is None
    assert found.pass_ == ("training" if training else "inference")


@pytest.mark.paper("RM-12")
def test_the_tensors_that_are_alive_at_once_are_counted_without_a_gpu() -> None:
    def counted(batch: int = 2, training: bool = False) -> tuple[int, int]:
        """Return the bytes of the weights, and of all tensors."""
        found = measure(
            "resmlp_s12",
            batch=batch,
            image_size=32,
            classes=10,
            precision="fp32",
            repeats=1,
            training=training,
            device=CPU,
        )
        assert found.tensor_memory_bytes is not None
        return 4 * found.parameters, found.tensor_memory_bytes

    weights, small = counted()
    assert small > weights
    # Twice the images take twice the activations.
    assert counted(batch=4)[1] - weights == pytest.approx(2 * (small - weights), rel=0.01)
    # A backward pass has gradients as well.
    assert counted(training=True)[1] > small + weights / 2


@pytest.mark.paper("PC-08")
def test_memory_is_linear_in_the_area_of_the_image_where_no_layer_mixes_all_pairs() -> None:
    # Thesis, figure 5.3: of a network of convolutions such as PatchConvNet.
    costs = [
        measure(
            "resnet18",
            batch=2,
            image_size=size,
            classes=10,
            precision="fp32",
            repeats=1,
            training=False,
            device=CPU,
        )
        for size in (64, 96, 128, 192)
    ]
    line = memory_line(costs)
    assert line is not None and line.sizes == 4
    assert line.largest_deviation < 0.01
    # Weights and running statistics.
    assert line.fixed_bytes == pytest.approx(4 * 11_181_642, rel=0.02)
    assert memory_line(costs[:2]) is None


@pytest.mark.paper("DE-16", "OR-11")
@given(limit=st.integers(1, 1 << 17))
def test_the_largest_batch_that_fits_is_found(limit: int) -> None:
    tried = []

    def fits(batch: int) -> bool:
        tried.append(batch)
        return batch <= limit

    assert largest(fits) == min(limit, 1 << 16)
    assert len(tried) <= 34


def test_a_gpu_too_small_for_one_image_is_told() -> None:
    with pytest.raises(BadInput, match="not even one image"):
        largest(lambda _: False)


@pytest.mark.paper("CA-13")
def test_a_model_whose_features_are_no_grid_is_measured_without_tokens() -> None:
    """CrossViT gives two lists of tokens."""
    found = measure(
        "crossvit_tiny_240",
        batch=1,
        image_size=240,
        classes=10,
        precision="fp32",
        repeats=1,
        training=False,
        device=CPU,
    )
    assert found.tokens is None and found.images_per_second > 0


def test_a_model_is_measured_with_another_number_of_heads() -> None:
    """Thesis, table 3.21: as many parameters and multiply-adds, whatever the number."""
    words = ["measure", "deit_ti", "--image-size", "32", "--batch", "1", "--repeats", "1", "--json"]
    command = [sys.executable, "-m", "vtjobs.cli", *words]
    found = []
    for heads in ("3", "12"):
        done = subprocess.run(
            [*command, "--arg", f"num_heads={heads}"], capture_output=True, text=True, check=True
        )
        (one,) = json.loads(done.stdout)
        found.append(one)
    assert [one["backbone"] for one in found] == ["deit_ti(num_heads=3)", "deit_ti(num_heads=12)"]
    first, second = found
    assert first["parameters"] == second["parameters"]
    assert first["multiply_adds"] == second["multiply_adds"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("num_heads", "error: --arg num_heads: write it as KEY=VALUE"),
        ("num_heads=5", "dim should be divisible by num_heads"),
        ("nope=1", "unexpected keyword argument 'nope'"),
    ],
)
def test_an_argument_that_a_model_does_not_take_is_told(given: str, said: str) -> None:
    words = ["measure", "deit_ti", "--image-size", "32", "--arg", given]
    command = [sys.executable, "-m", "vtjobs.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


def test_one_backbone_that_is_unknown_does_not_keep_the_others_from_being_measured() -> None:
    words = [
        "measure",
        "vit_mini",
        "vit_nope",
        "--image-size",
        "16",
        "--batch",
        "1",
        "--repeats",
        "1",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "vtjobs.cli", *words], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert [one["backbone"] for one in json.loads(done.stdout)] == ["vit_mini"]
    assert "error: unknown backbone 'vit_nope'" in done.stderr


@pytest.mark.parametrize(
    "words",
    [["--batch", "0"], ["--batch", "many"], ["--precision", "int8"], ["--batch", "largest"]],
)
def test_a_measurement_that_cannot_be_made_is_told(words: list[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "vtjobs.cli",
        "measure",
        "vit_mini",
        "--image-size",
        "16",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=None)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --") and "Traceback" not in done.stderr

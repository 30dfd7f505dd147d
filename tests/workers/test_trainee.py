"""Backbone and head under one roof: the head is beside the classifier, never in it."""

import math
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn

from vtjobs.jobs import library
from vtjobs.jobs.recipe import Recipe
from vtjobs.workers.backbones import build, create_arguments
from vtjobs.workers.manifest import MODEL
from vtjobs.workers.randomness import Streams
from vtjobs.workers.trainee import (
    PrecisionError,
    frozen_statistics,
    layers_with_statistics,
    make_numerics,
    make_optimizer,
    make_schedule,
    make_trainee,
)

from ..support.training import CONVNET, CPU, VIT, contents, differences, newest, run_spec, training, weights_of


@pytest.mark.parametrize("backbone", [VIT, CONVNET])
@pytest.mark.parametrize("head", ["drloc", "relvit"])
def test_a_head_leaves_the_initial_weights_and_the_classifier_as_they_are(backbone: dict[str, Any], head: str) -> None:
    plain, beside = (make_trainee(spec, Streams(spec.seeds)) for spec in (run_spec(backbone), run_spec(backbone, head)))
    assert differences(weights_of(plain.backbone), weights_of(beside.backbone)) == []
    images = torch.randn(4, 1, 16, 16)
    for model in (plain, beside):
        model.eval()
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(plain(images)[0], beside(images, generator)[0])
    assert torch.equal(plain(images)[0], plain.backbone(images))


@pytest.mark.parametrize("head", ["drloc", "relvit"])
def test_a_checkpoint_loads_strictly_into_a_plain_timm_model(tmp_path: Path, head: str) -> None:
    spec = run_spec(VIT, head, epochs=1, ema_decay=0.9)
    assert training(spec, tmp_path).run()
    last = newest(tmp_path, spec.run_id)
    assert last is not None
    saved = contents(last)
    for name in (MODEL, "ema.safetensors"):
        model = timm.create_model(spec.backbone["model"], **create_arguments(spec.backbone, spec.dataset, spec.recipe))
        model.load_state_dict(saved[name], strict=True)


def test_the_seed_of_each_stream_moves_only_its_own_draws() -> None:
    spec = run_spec(VIT, "drloc")
    base = make_trainee(spec, Streams(spec.seeds))
    moved = make_trainee(spec, Streams(spec.seeds | {"order": 9, "augment": 9, "mix": 9, "drop": 9, "pair": 9}))
    assert differences(weights_of(base), weights_of(moved)) == []
    other = make_trainee(spec, Streams(spec.seeds | {"init": 9}))
    assert differences(weights_of(base), weights_of(other)) != []


def test_the_learning_rate_warms_up_linearly_and_falls_as_a_cosine_step_by_step() -> None:
    spec = run_spec(epochs=10, lr=4e-3, warmup_epochs=2.5, warmup_lr=1e-6, min_lr=1e-5)
    trainee = make_trainee(spec, Streams(spec.seeds))
    optimizer = make_optimizer(trainee, spec.recipe)
    schedule = make_schedule(optimizer, spec.recipe, 4)
    for step in range(40):
        schedule.step_update(step)
        if step < 10:
            expected = 1e-6 + step * (4e-3 - 1e-6) / 10
        else:
            expected = 1e-5 + (4e-3 - 1e-5) / 2 * (1 + math.cos(math.pi * step / 40))
        for group in optimizer.param_groups:
            assert group["lr"] == pytest.approx(expected, rel=1e-9)


def test_a_constant_schedule_stays_at_its_rate_after_the_warm_up() -> None:
    spec = run_spec(epochs=5, lr=4e-3, warmup_epochs=1, schedule="constant")
    optimizer = make_optimizer(make_trainee(spec, Streams(spec.seeds)), spec.recipe)
    schedule = make_schedule(optimizer, spec.recipe, 4)
    found = []
    for step in range(20):
        schedule.step_update(step)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([0, 1e-3, 2e-3, 3e-3] + [4e-3] * 16)


@pytest.mark.parametrize("head", ["supervised", "drloc"])
def test_weight_decay_spares_one_dimensional_parameters_and_what_the_backbone_names(head: str) -> None:
    spec = run_spec(VIT, head, weight_decay=0.05)
    trainee = make_trainee(spec, Streams(spec.seeds))
    optimizer = make_optimizer(trainee, spec.recipe)
    decayed = {
        id(parameter) for group in optimizer.param_groups if group["weight_decay"] for parameter in group["params"]
    }
    for name, parameter in trainee.named_parameters():
        spared = parameter.ndim <= 1 or name in ("backbone.pos_embed", "backbone.cls_token")
        assert (id(parameter) in decayed) == (not spared), name
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(trainee.parameters()))


def test_frozen_statistics_normalise_by_the_batch_and_move_nothing() -> None:
    spec = run_spec(CONVNET)
    trainee = make_trainee(spec, Streams(spec.seeds)).train()
    images = torch.randn(4, 1, 16, 16)
    before = weights_of(trainee)
    layers = layers_with_statistics(trainee)
    assert layers and all(isinstance(layer, nn.BatchNorm2d) for layer in layers)
    with frozen_statistics(layers, True):
        frozen = trainee(images)[0]
    assert differences(weights_of(trainee), before) == []
    with frozen_statistics(layers, False):
        moving = trainee(images)[0]
    assert torch.equal(frozen, moving)
    assert differences(weights_of(trainee), before) != []


def test_the_precision_is_the_recipes() -> None:
    for precision, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        numerics = make_numerics(run_spec(precision=precision).recipe, CPU)
        with numerics.autocast():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
        assert numerics.scaler.is_enabled() == (precision == "fp16")


def test_bf16_is_refused_where_the_gpu_cannot_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an old GPU")
    with pytest.raises(PrecisionError, match="Use precision: fp16"):
        make_numerics(run_spec(precision="bf16").recipe, torch.device("cuda"))


def test_every_recipe_of_the_catalogue_makes_an_optimizer_and_a_schedule() -> None:
    for name in library.recipe_names():
        recipe = Recipe.model_validate(library.recipe_data(name)).model_dump(mode="json")
        spec = run_spec(VIT)
        model = build(spec.backbone, spec.dataset, spec.recipe)
        optimizer = make_optimizer(type(make_trainee(spec, Streams(spec.seeds)))(model, None), recipe)
        make_schedule(optimizer, recipe, 4).step_update(0)
        assert optimizer.param_groups[0]["lr"] == recipe["warmup_lr"]

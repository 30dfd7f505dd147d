"""Backbone and head under one roof: the head is beside the classifier, never in it."""

import math
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2
from torch import nn

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.settings import BackboneSettings, ModelShape
from vtjobs.workers.checkpoints.manifest import MODEL
from vtjobs.workers.checkpoints.weights import load_weights
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build, create_arguments
from vtjobs.workers.randomness import Streams
from vtjobs.workers.training.schedule import make_schedule, schedule_position
from vtjobs.workers.training.trainee import (
    PrecisionError,
    Trainee,
    frozen_statistics,
    fused,
    layers_with_statistics,
    make_numerics,
    make_optimizer,
    make_trainee,
    tap_of,
)

from ...support.training import (
    CONVNET,
    CPU,
    VIT,
    contents,
    differences,
    make_backbone,
    newest,
    run_spec,
    training,
    weights_of,
)

SWIN = make_backbone(
    "swin_tiny_patch4_window7_224",
    patch_size=2,
    embed_dim=12,
    depths=[1, 1],
    num_heads=[2, 2],
    window_size=4,
)


@pytest.mark.paper("DR-07", "DR-10")
@pytest.mark.parametrize("backbone", [VIT, CONVNET])
@pytest.mark.parametrize("head", ["drloc", "relvit"])
def test_a_head_leaves_the_initial_weights_and_the_classifier_as_they_are(
    backbone: BackboneSettings, head: str
) -> None:
    plain, beside = (
        make_trainee(spec, Streams(spec.seeds))
        for spec in (run_spec(backbone), run_spec(backbone, head))
    )
    assert differences(weights_of(plain.backbone), weights_of(beside.backbone)) == []
    images = torch.randn(4, 1, 16, 16)
    for model in (plain, beside):
        model.eval()
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(plain(images)[0], beside(images, generator)[0])
    assert torch.equal(plain(images)[0], plain.backbone(images))


@pytest.mark.paper("DR-10", "DR-12", "RV-12")
@pytest.mark.parametrize("head", ["drloc", "relvit"])
def test_a_checkpoint_loads_strictly_into_a_plain_timm_model(tmp_path: Path, head: str) -> None:
    spec = run_spec(VIT, head, epochs=1, ema_decay=0.9)
    assert training(spec, tmp_path).run()
    last = newest(tmp_path, spec.run_id)
    assert last is not None
    saved = contents(last)
    for name in (MODEL, "ema.safetensors"):
        model = timm.create_model(
            spec.backbone.model, **create_arguments(spec.backbone, spec.shape)
        )
        model.load_state_dict(saved[name], strict=True)


def test_the_seed_of_each_stream_moves_only_its_own_draws() -> None:
    spec = run_spec(VIT, "drloc")
    base = make_trainee(spec, Streams(spec.seeds))
    moved = make_trainee(
        spec, Streams(spec.seeds | {"order": 9, "augment": 9, "mix": 9, "drop": 9, "pair": 9})
    )
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
def test_weight_decay_spares_one_dimensional_parameters_and_what_the_backbone_names(
    head: str,
) -> None:
    spec = run_spec(VIT, head, weight_decay=0.05)
    trainee = make_trainee(spec, Streams(spec.seeds))
    optimizer = make_optimizer(trainee, spec.recipe)
    decayed = {
        id(parameter)
        for group in optimizer.param_groups
        if group["weight_decay"]
        for parameter in group["params"]
    }
    for name, parameter in trainee.named_parameters():
        spared = parameter.ndim <= 1 or name in ("backbone.pos_embed", "backbone.cls_token")
        assert (id(parameter) in decayed) == (not spared), name
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(
        list(trainee.parameters())
    )


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
    for precision, dtype in (
        ("fp32", torch.float32),
        ("fp16", torch.float16),
        ("bf16", torch.bfloat16),
    ):
        numerics = make_numerics(CPU, precision=precision)
        with numerics.autocast():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
        assert numerics.scaler.is_enabled() == (precision == "fp16")


def test_bf16_is_refused_where_the_gpu_cannot_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an old GPU")
    with pytest.raises(PrecisionError, match="Use precision: fp16"):
        make_numerics(torch.device("cuda"), precision="bf16")


def test_every_recipe_of_the_catalogue_makes_an_optimizer_and_a_schedule() -> None:
    for name in catalogue.recipe_names():
        recipe = Recipe.model_validate(catalogue.recipe_data(name)).settings
        spec = run_spec(VIT)
        model = build(spec.backbone, spec.shape)
        optimizer = make_optimizer(Trainee(model, None, None), recipe)
        # So many that every warm-up has a step.
        make_schedule(optimizer, recipe, 40).step_update(0)
        first = recipe.warmup_lr if recipe.warmup_epochs else recipe.lr
        assert optimizer.param_groups[0]["lr"] == first


def test_a_linear_schedule_falls_from_the_start_of_training_in_a_straight_line() -> None:
    spec = run_spec(epochs=10, lr=4e-3, warmup_epochs=1, min_lr=1e-5, schedule="linear")
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=4e-3)
    schedule = make_schedule(optimizer, spec.recipe, steps_per_epoch=10)
    rates = []
    for step in range(101):
        schedule.step_update(step)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[5] == pytest.approx(2e-3), "half of the warm-up"
    for step in (10, 50, 99):
        assert rates[step] == pytest.approx(1e-5 + (4e-3 - 1e-5) * (1 - step / 100))


def test_a_quarter_cosine_stays_high_and_falls_late() -> None:
    spec = run_spec(epochs=10, lr=4e-3, warmup_epochs=1, min_lr=1e-5, schedule="quarter_cosine")
    optimizer = make_optimizer(make_trainee(spec, Streams(spec.seeds)), spec.recipe)
    schedule = make_schedule(optimizer, spec.recipe, 4)
    for step in range(41):
        schedule.step_update(step)
        rest = 1e-5 + (4e-3 - 1e-5) * math.cos(math.pi / 2 * step / 40)
        expected = 4e-3 * step / 4 if step < 4 else rest
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-9)


def test_a_schedule_may_be_longer_than_the_training() -> None:
    """What the published DRLoc program does.

    After 101 epochs of 300 the rate is at three quarters of its peak.
    """
    recipe = Recipe.model_validate(catalogue.recipe_data("drloc-scratch", "code")).settings
    spec = run_spec(VIT)
    optimizer = make_optimizer(make_trainee(spec, Streams(spec.seeds)), recipe)
    schedule = make_schedule(optimizer, recipe, 10)
    schedule.step_update(101 * 10 - 1)
    assert optimizer.param_groups[0]["lr"] / recipe.lr == pytest.approx(0.75, abs=0.01)


SSL = {"labels": False, "positions": False, "shuffle": True}


@pytest.mark.paper("RV-01", "RV-09")
def test_without_labels_there_is_no_classifier_and_no_positional_embedding_to_train() -> None:
    spec = run_spec(VIT, "relvit", params=SSL)
    trainee = make_trainee(spec, Streams(spec.seeds))
    trained = {name for name, parameter in trainee.named_parameters() if parameter.requires_grad}
    assert not any("pos_embed" in name or name.startswith("backbone.head") for name in trained)
    logits, loss, *_ = trainee(torch.randn(2, 1, 16, 16), torch.Generator())
    assert logits is None and loss is not None
    loss.backward()
    assert [
        name for name, one in trainee.named_parameters() if one.requires_grad and one.grad is None
    ] == []


def test_what_the_patch_tokens_do_not_need_is_left_out_of_training_without_labels() -> None:
    pooled = make_backbone(VIT.model, **VIT.args, global_pool="avg", fc_norm=True)
    spec = run_spec(pooled, "relvit", params=SSL)
    trainee = make_trainee(spec, Streams(spec.seeds))
    frozen = {name for name, one in trainee.named_parameters() if not one.requires_grad}
    assert frozen == {"backbone.fc_norm.weight", "backbone.fc_norm.bias"}


@pytest.mark.paper("RV-09")
def test_fine_tuning_starts_from_all_weights_but_the_positional_embedding_and_the_classifier(
    tmp_path: Path,
) -> None:
    before = run_spec(VIT, "relvit", params=SSL, epochs=1)
    assert training(before, tmp_path / "before").run()
    weights = newest(tmp_path / "before", before.run_id)
    assert weights is not None
    spec = run_spec(VIT, epochs=1)
    model = make_trainee(spec, Streams(spec.seeds)).backbone
    assert load_weights(model, weights / MODEL) == ["head.bias", "head.weight", "pos_embed"]


@pytest.mark.paper("GR-04", "GR-14")
def test_a_projector_is_left_behind_by_all_but_its_like(tmp_path: Path) -> None:
    # With as many outputs as there are classes, so that its shapes are those of the classifier.
    params = {"projector": "linear", "dim": 10, "views": 2}
    before = run_spec(VIT, "grafit", params=params, epochs=1)
    assert training(before, tmp_path).run()
    weights = newest(tmp_path, before.run_id)
    assert weights is not None
    left = []
    other = run_spec(VIT, "grafit", params={**params, "dim": 8})
    for spec in (run_spec(VIT), other, run_spec(VIT, "grafit", params=params)):
        model = make_trainee(spec, Streams(spec.seeds)).backbone
        left.append(load_weights(model, weights / MODEL))
    drawn = ["head.grafit_projector.bias", "head.grafit_projector.weight"]
    assert left == [["head.bias", "head.weight"], drawn, []]


@pytest.mark.paper("GR-14")
def test_a_larger_classifier_begins_anew_after_a_linear_one_or_a_projector(tmp_path: Path) -> None:
    for before in (run_spec(VIT, epochs=1), run_spec(VIT, "grafit", params={"views": 2}, epochs=1)):
        folder = tmp_path / before.head.name
        assert training(before, folder).run()
        weights = newest(folder, before.run_id)
        assert weights is not None
        spec = run_spec(VIT, classifier="mlp")
        model = make_trainee(spec, Streams(spec.seeds)).backbone
        left = load_weights(model, weights / MODEL)
        assert set(left) == {name for name in model.state_dict() if name.startswith("head.")}


def test_a_head_without_labels_leaves_no_larger_classifier() -> None:
    spec = run_spec(VIT, "relvit", params={"labels": False}, classifier="mlp")
    assert not list(make_trainee(spec, Streams(spec.seeds)).backbone.head.parameters())


@pytest.mark.paper("RV-08", "RV-34")
@pytest.mark.parametrize(
    ("backbone", "params", "words"),
    [
        (CONVNET, {"positions": False}, "no positional embedding to remove"),
        (CONVNET, {"mega": 2}, "need a transformer over square patches"),
        (VIT, {"mega": 3}, "16-pixel images have 2 patches"),
        (CONVNET, {"shuffle": True}, "cannot be divided into"),
        (SWIN, {"mega": 4}, "need one token per patch"),
    ],
)
def test_what_a_backbone_has_not_cannot_be_left_out_or_cut(
    backbone: BackboneSettings, params: dict[str, Any], words: str
) -> None:
    spec = run_spec(backbone, "relvit", params=params, image_size=20 if "shuffle" in params else 16)
    with pytest.raises(BackboneError, match=words):
        make_trainee(spec, Streams(spec.seeds))


@pytest.mark.paper("DR-23")
@pytest.mark.parametrize("backbone", [VIT, CONVNET])
@pytest.mark.parametrize(
    ("head", "params"), [("drloc", {"blocks": "all"}), ("drloc", {"tokens": "before_norm"})]
)
def test_grids_of_all_blocks_and_before_the_norm_reach_the_head(
    backbone: BackboneSettings, head: str, params: dict[str, Any]
) -> None:
    spec = run_spec(backbone, head, params=params, image_size=32)
    trainee = make_trainee(spec, Streams(spec.seeds))
    _, loss, *_ = trainee(torch.randn(2, 1, 32, 32), torch.Generator())
    assert loss is not None
    loss.backward()
    assert trainee.head is not None and all(
        one.grad is not None for one in trainee.head.parameters()
    )


def test_the_ends_of_swins_stages_are_taken_after_their_patches_are_merged() -> None:
    spec = run_spec(SWIN, "drloc", params={"blocks": "stages"}, image_size=32)
    swin: Any = make_trainee(spec, Streams(spec.seeds)).backbone.eval()
    images = torch.randn(2, 1, 32, 32)
    _, grids = tap_of(swin, spec.head).features(images)
    merged = swin.layers[1].downsample(swin.layers[0](swin.patch_embed(images)))
    last = swin.layers[1].blocks(merged)
    assert [grid.shape for grid in grids] == [(2, 8, 8, 24), (2, 8, 8, 24)]
    assert torch.equal(grids[0], merged) and torch.equal(grids[1], last)


def test_only_a_swin_has_such_stages() -> None:
    spec = run_spec(VIT, "drloc", params={"blocks": "stages"})
    with pytest.raises(BackboneError, match=r"needs a Swin\. Write blocks: all"):
        make_trainee(spec, Streams(spec.seeds))


@pytest.mark.parametrize(("backbone", "patch"), [(VIT, 8), (SWIN, 4), (CONVNET, 8)])
def test_patches_are_the_squares_that_tokens_stand_for_whatever_the_backbone(
    backbone: BackboneSettings, patch: int
) -> None:
    spec = run_spec(backbone, "relvit", params={"shuffle": True}, image_size=32)
    assert make_trainee(spec, Streams(spec.seeds)).patch == patch


def test_leaving_out_the_positions_shifts_no_other_initial_weight() -> None:
    plain, without = (
        weights_of(make_trainee(spec, Streams(spec.seeds)).backbone)
        for spec in (run_spec(VIT), run_spec(VIT, "relvit", params={"positions": False}))
    )
    assert set(plain) - set(without) == {"pos_embed"}
    assert differences({name: plain[name] for name in without}, without) == []


@pytest.mark.parametrize("name", ["cvt_13", "patchconvnet_s60"])
def test_our_own_backbones_train_without_a_classifier_too(name: str) -> None:
    families: dict[str, dict[str, Any]] = {
        "cvt_13": {"depths": [1, 1, 1]},
        "patchconvnet_s60": {"depth": 1, "embed_dim": 16},
    }
    spec = run_spec(
        make_backbone(name, **families[name]), "relvit", params={"labels": False}, image_size=32
    )
    trainee = make_trainee(spec, Streams(spec.seeds))
    logits, loss, *_ = trainee(torch.randn(2, 1, 32, 32), torch.Generator())
    assert logits is None and loss is not None


@pytest.mark.paper("GR-08")
def test_grafits_recipe_has_nesterovs_momentum_and_a_rate_by_the_batch() -> None:
    # Thesis, section 2.4.3: 0.1 for 256 images, batches of 1024.
    recipe = Recipe.model_validate(catalogue.recipe_data("grafit")).settings
    spec = run_spec(VIT)
    (group,) = {
        (one["nesterov"], one["momentum"])
        for one in make_optimizer(make_trainee(spec, Streams(spec.seeds)), recipe).param_groups
    }
    assert group == (True, 0.9)
    assert (recipe.lr, recipe.batch_size, recipe.epochs, recipe.schedule) == (
        *(0.4, 1024, 600, "cosine"),
    )


def test_everything_decays_where_the_recipe_says_so() -> None:
    spec = run_spec(VIT, weight_decay=0.1, decay_all=True)
    optimizer = make_optimizer(make_trainee(spec, Streams(spec.seeds)), spec.recipe)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.1}


@pytest.mark.paper("DR-36", "DR-37", "RV-24", "GR-08", "DE-02", "RM-04", "PC-06", "D3-06")
@pytest.mark.parametrize("fidelity", ["paper", "code"])
@pytest.mark.parametrize("name", catalogue.recipe_names())
def test_the_learning_rate_of_every_recipe_follows_its_formula(name: str, fidelity: str) -> None:
    recipe = Recipe.model_validate(catalogue.recipe_data(name, fidelity)).settings
    spec, steps = run_spec(VIT), 3
    optimizer = make_optimizer(Trainee(build(spec.backbone, spec.shape), None, None), recipe)
    schedule = make_schedule(optimizer, recipe, steps)
    units = 1 if recipe.schedule_unit == "epoch" else steps
    warmup = round(recipe.warmup_epochs * units)
    total = (recipe.schedule_epochs or recipe.epochs) * units
    falls = recipe.decay_epochs if isinstance(recipe.decay_epochs, tuple) else ()
    for number in range(recipe.epochs * steps):
        epoch, within = divmod(number, steps)
        schedule.step_update(schedule_position(recipe, epoch=epoch, step=within, steps=steps))
        step = max(0, (epoch if units == 1 else number) - recipe.schedule_lag)
        if step < warmup:
            wanted = recipe.warmup_lr + step / warmup * (recipe.lr - recipe.warmup_lr)
        else:
            share = {
                "cosine": (1 + math.cos(math.pi * step / total)) / 2,
                "quarter_cosine": math.cos(math.pi / 2 * step / total),
                "linear": 1 - step / total,
                "step": 0.1 ** sum(step >= fall * units for fall in falls),
            }[recipe.schedule]
            wanted = recipe.min_lr + share * (recipe.lr - recipe.min_lr)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(wanted, rel=1e-9), number


@pytest.mark.paper("DE-02")
def test_deits_published_program_trains_two_epochs_at_the_first_rate() -> None:
    """Its schedule moves once per epoch, after it; figures of its own run, epochs 1 to 6."""
    recipe = Recipe.model_validate(catalogue.recipe_data("deit", "code")).settings
    spec, steps = run_spec(VIT), 4
    optimizer = make_optimizer(Trainee(build(spec.backbone, spec.shape), None, None), recipe)
    schedule = make_schedule(optimizer, recipe, steps)
    rates = []
    for epoch in range(6):
        schedule.step_update(schedule_position(recipe, epoch=epoch, step=2, steps=steps))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1e-6, 1e-6, 2.0e-4, 4.0e-4, 6.0e-4, 8.0e-4], rel=5e-3)


@pytest.mark.parametrize("name", ["resmlp_s12", "patchconvnet_s60", "cvt_13"])
def test_affine_norms_and_class_tokens_do_not_decay(name: str) -> None:
    model = build(
        catalogue.backbone(name), ModelShape(channels=3, classes=10, image_size=224), None
    )
    recipe = Recipe.model_validate(catalogue.recipe_data("deit")).settings
    optimizer = make_optimizer(Trainee(model, None, None), recipe)
    decayed = {
        id(parameter)
        for group in optimizer.param_groups
        if group["weight_decay"]
        for parameter in group["params"]
    }
    names = {key for key, value in model.named_parameters() if id(value) in decayed}
    assert names
    assert not [key for key in names if key.endswith(("alpha", "beta", "cls_token"))]


@pytest.mark.paper("D3-05")
def test_lamb_clips_where_the_recipe_does_and_not_by_itself() -> None:
    """A step of LAMB on one parameter, without clipping, from its definition (You et al.

    2020, algorithm 2).
    """
    layer = nn.Linear(2, 1, bias=False)
    start = torch.tensor([[3.0, 4.0]])
    with torch.no_grad():
        layer.weight.copy_(start)
    recipe = run_spec(optimizer="lamb", lr=0.1, weight_decay=0.02).recipe
    trainee = Trainee(layer, None, None)
    optimizer = make_optimizer(trainee, recipe)
    gradient = torch.tensor([[300.0, -40.0]])
    for _ in range(2):
        layer.weight.grad = gradient.clone()
        before = layer.weight.detach().clone()
        optimizer.step()
    # With one gradient over and over both moments, freed of their bias, are that gradient and its
    # square.
    update = gradient.sign() + 0.02 * before
    wanted = before - 0.1 * before.norm() / update.norm() * update
    torch.testing.assert_close(layer.weight.detach(), wanted, atol=1e-5, rtol=1e-5)
    assert optimizer.defaults["max_grad_norm"] is None


@pytest.mark.parametrize("name", ["adam", "adamw", "momentum", "sgd", "lamb"])
def test_an_optimizer_of_torch_is_fused_on_a_gpu(name: str) -> None:
    assert fused(name, torch.device("cpu")) == {}
    given = fused(name, torch.device("cuda"))
    momentum = {"momentum": 0.9} if name in ("momentum", "sgd") else {}
    made = create_optimizer_v2(nn.Linear(2, 2), opt=name, lr=0.1, **momentum, **given)
    # Such a one takes the scaler's word for an overflow without waiting for the device.
    assert getattr(made, "_step_supports_amp_scaling", False) == (name != "lamb")

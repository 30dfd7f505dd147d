"""Which parts of a backbone are trained, and how fast each."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from vtjobs.jobs.run.settings import BackboneSettings
from vtjobs.workers.checkpoints.manifest import MODEL
from vtjobs.workers.checkpoints.weights import load_weights
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.randomness import Streams
from vtjobs.workers.training.parts import (
    Part,
    layer_groups,
    leave_trainable,
    parameters_of,
    trained_of,
)
from vtjobs.workers.training.schedule import make_schedule
from vtjobs.workers.training.trainee import Trainee, make_optimizer, make_trainee

from ...support.training import CONVNET, VIT, make_backbone, newest, run_spec, training, weights_of

CVT = make_backbone("cvt_13")
PATCHCONVNET = make_backbone("patchconvnet_s60", embed_dim=64, depth=3)
RESMLP = make_backbone("resmlp_s12", embed_dim=16, num_blocks=3, patch_size=4)


def trained(folder: Path, backbone: BackboneSettings, part: str) -> tuple[set[str], set[str]]:
    """Return the weights that a short training moved, and the ones that it left alone."""
    run = training(run_spec(backbone, epochs=1, warmup_epochs=0, trainable=part), folder)
    before = weights_of(run.trainee.backbone)
    run.run()
    after = weights_of(run.trainee.backbone)
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    return moved, after.keys() - moved


@pytest.mark.paper("GR-10", "RM-05")
@pytest.mark.parametrize(
    ("backbone", "classifier"), [(VIT, {"head.weight", "head.bias"}), (CONVNET, {"fc.weight", "fc.bias"})]
)  # fmt: skip
def test_a_linear_probe_moves_the_classifier_alone(
    tmp_path: Path, backbone: BackboneSettings, classifier: set[str]
) -> None:
    # Also no running statistics.
    assert trained(tmp_path, backbone, "classifier")[0] == classifier


@pytest.mark.paper("D3-14")
def test_of_a_transformer_attention_and_classifier_can_be_trained_alone(tmp_path: Path) -> None:
    moved, left = trained(tmp_path, VIT, "attention")
    assert moved and all(".attn." in name or name.startswith("head.") for name in moved)
    assert left and not any(".attn." in name and name.endswith("weight") for name in left)


def made(backbone: BackboneSettings, part: Part, **recipe: Any) -> Trainee:
    spec = run_spec(backbone, trainable=part, **recipe)
    trainee = make_trainee(spec, Streams(spec.seeds))
    leave_trainable(trainee, spec.recipe)
    return trainee


def test_the_features_of_a_linear_probe_are_those_of_evaluation() -> None:
    trainee = made(VIT, "classifier", dropout=0.5)
    images = torch.rand(4, 1, 16, 16)
    assert torch.equal(trainee(images)[0], trainee(images)[0])


def test_class_attention_is_attention_and_its_block_is_more() -> None:
    cait = make_backbone("cait_xxs24_224", patch_size=4, embed_dim=16, depth=1, num_heads=2)
    backbone = made(cait, "attention").backbone
    names = {name for name, value in backbone.named_parameters() if value.requires_grad}
    assert {name.split(".")[0] for name in names} == {"blocks", "blocks_token_only", "head"}
    assert all(".attn." in name or name.startswith("head.") for name in names)


def test_a_backbone_without_attention_is_told() -> None:
    with pytest.raises(
        BackboneError, match="trainable: attention needs attention; ResNet has none"
    ):
        made(CONVNET, "attention")


def test_the_innermost_layers_of_attention_count_whatever_they_are_called() -> None:
    maxvit = timm.create_model("maxvit_pico_rw_256", num_classes=2)
    chosen = {id(value) for value in parameters_of(maxvit, "attention")}
    names = {name for name, value in maxvit.named_parameters() if id(value) in chosen}
    assert any(".attn." in name for name in names) and not any(".mlp." in name for name in names)
    xcit = timm.create_model("xcit_nano_12_p16_224", num_classes=2)
    chosen = {id(value) for value in parameters_of(xcit, "attention")}
    assert id(xcit.blocks[0].attn.qkv.weight) in chosen
    with pytest.raises(BackboneError, match="needs attention"):
        parameters_of(timm.create_model("resnest14d", num_classes=2), "attention")


@pytest.mark.parametrize("part", ["attention", "classifier"])
def test_what_is_frozen_is_loaded_at_another_image_size_as_what_is_trained(
    tmp_path: Path, part: Part
) -> None:
    cait = make_backbone("cait_xxs24_224", patch_size=4, embed_dim=16, depth=1, num_heads=2)
    small = training(run_spec(cait, epochs=1, warmup_epochs=0), tmp_path / "small")
    small.run()
    spec = run_spec(cait, epochs=1, image_size=32, trainable=part)
    file = newest(tmp_path / "small", small.spec.run_id)
    assert file is not None
    large = training(spec, tmp_path / "large", init=file / MODEL)
    free = make_trainee(spec, Streams(spec.seeds))
    load_weights(free.backbone, file / MODEL)
    assert torch.equal(large.trainee.backbone.pos_embed, free.backbone.pos_embed)


SCALED = make_backbone("deit_small_scaled", patch_size=4, embed_dim=16, depth=2, num_heads=2)
FACTORS = ("blocks.*.ls?.gamma",)


@pytest.mark.paper("CA-05")
def test_learned_factors_can_be_taken_alone_and_frozen(tmp_path: Path) -> None:
    # The control experiment of the thesis' section 3.5.3.
    learned = training(run_spec(SCALED, epochs=1, warmup_epochs=0), tmp_path / "learned")
    learned.run()
    file = newest(tmp_path / "learned", learned.spec.run_id)
    assert file is not None
    given = weights_of(learned.trainee.backbone)
    recipe = {"frozen": FACTORS, "init_only": FACTORS}
    spec = run_spec(SCALED, epochs=1, warmup_epochs=0, **recipe)
    again = training(spec, tmp_path / "again", init=file / MODEL)
    before = weights_of(again.trainee.backbone)
    same = {name for name, value in before.items() if torch.equal(value, given[name])}
    # Biases and norms begin alike in any model, and have been trained since.
    assert same == {f"blocks.{block}.ls{branch}.gamma" for block in (0, 1) for branch in (1, 2)}
    again.run()
    after = weights_of(again.trainee.backbone)
    assert {name for name, value in after.items() if torch.equal(value, before[name])} == same


def test_a_frozen_parameter_stays_frozen_beside_a_part_that_is_trained() -> None:
    backbone = made(VIT, "attention", frozen=("blocks.0.*",)).backbone
    names = {name for name, value in backbone.named_parameters() if value.requires_grad}
    assert names and not any(name.startswith("blocks.0.") for name in names)


def test_a_pattern_that_names_no_parameter_is_told_with_names_that_there_are() -> None:
    model = timm.create_model("vit_tiny_patch16_224", num_classes=2)
    told = r"frozen: .* no parameter 'block\.\*'; it has cls_token"
    with pytest.raises(BackboneError, match=told):
        trained_of(model, "all", ["head.*", "block.*"])


@pytest.mark.parametrize(("part", "frozen"), [("all", ("*",)), ("classifier", ("head.*",))])
def test_a_recipe_that_leaves_nothing_to_train_is_told(part: Part, frozen: tuple[str, ...]) -> None:
    with pytest.raises(BackboneError, match="leaves nothing of the backbone to train"):
        made(VIT, part, frozen=frozen)


def test_parameters_to_take_that_no_weights_have_are_told(tmp_path: Path) -> None:
    # A classifier of other classes does not fit, and a run that took nothing would begin anew.
    weights = {"head.weight": torch.zeros(7, 16), "norm.weight": torch.zeros(16)}
    save_file(weights, tmp_path / MODEL)
    model = made(VIT, "all").backbone
    told = r"init_only: .* have nothing named 'head\.\*' that the model can take"
    with pytest.raises(BackboneError, match=told):
        load_weights(model, tmp_path / MODEL, only=["head.*"])
    assert "norm.weight" not in load_weights(model, tmp_path / MODEL, only=["norm.*"])


# The rate of each layer ---------------------------------------------------------------------------


def rates(backbone: BackboneSettings, head: str = "supervised") -> dict[str, float]:
    """Return the learning rate of each parameter, as a fraction of the recipe's."""
    spec = run_spec(backbone, head, lr=1e-2, layer_decay=0.5, schedule="constant", warmup_epochs=0)
    trainee = make_trainee(spec, Streams(spec.seeds))
    optimizer = make_optimizer(trainee, spec.recipe)
    make_schedule(optimizer, spec.recipe, 4).step_update(0)
    names = {id(value): name for name, value in trainee.named_parameters()}
    return {
        names[id(value)].removeprefix("backbone."): group["lr"] / 1e-2
        for group in optimizer.param_groups
        for value in group["params"]
    }


def test_the_rate_halves_from_layer_to_layer_and_the_classifier_has_the_whole_one() -> None:
    found = rates(VIT)
    blocks = sorted({name.split(".")[1] for name in found if name.startswith("blocks.")}, key=int)
    by_block = [found[f"blocks.{block}.attn.qkv.weight"] for block in blocks]
    assert found["head.weight"] == 1.0
    assert by_block == pytest.approx([0.5 ** (len(blocks) - index) for index in range(len(blocks))])
    assert found["patch_embed.proj.weight"] == pytest.approx(by_block[0] / 2)


def test_the_head_beside_it_has_the_whole_rate_and_every_weight_is_trained() -> None:
    spec = run_spec(VIT, "drloc")
    trainee = make_trainee(spec, Streams(spec.seeds))
    names = {name.removeprefix("backbone.") for name, _ in trainee.named_parameters()}
    found = rates(VIT, "drloc")
    assert found.keys() == names
    assert trainee.head is not None
    assert {found[f"head.{name}"] for name, _ in trainee.head.named_parameters()} == {1.0}


@pytest.mark.parametrize("backbone", [CVT, PATCHCONVNET, RESMLP], ids=["cvt", "patchconvnet", "resmlp"])  # fmt: skip
def test_the_layers_of_our_own_architectures_are_told_apart(backbone: BackboneSettings) -> None:
    found = rates(backbone)
    first = min(value for name, value in found.items() if "embed" in name or "stem" in name)
    assert first < 0.5 < found["head.weight"] == 1.0
    assert min(found.values()) == first and len(set(found.values())) >= 4


def test_of_cvt_each_embedding_goes_with_the_first_block_of_its_stage() -> None:
    found = rates(CVT)
    stages = [
        (next(v for n, v in found.items() if n.startswith(f"embeds.{stage}.")),
         next(v for n, v in found.items() if n.startswith(f"stages.{stage}.0.")))
        for stage in (1, 2)
    ]  # fmt: skip
    assert all(embedding == block for embedding, block in stages)
    assert found["cls_token"] == stages[1][0]


def test_a_backbone_that_tells_no_layers_is_refused() -> None:
    class Plain(nn.Module):
        pass

    with pytest.raises(BackboneError, match="layer_decay needs a backbone with a group_matcher; Plain has none"):  # fmt: skip
        layer_groups(Trainee(Plain(), None, None), run_spec(layer_decay=0.5).recipe, set())


# The schedule of old ------------------------------------------------------------------------------


def rates_by_step(steps: int, *, per_epoch: int, **recipe: Any) -> list[float]:
    spec = run_spec(lr=1e-2, schedule="step", **recipe)
    optimizer = make_optimizer(make_trainee(spec, Streams(spec.seeds)), spec.recipe)
    schedule = make_schedule(optimizer, spec.recipe, per_epoch)
    found = []
    for step in range(steps):
        schedule.step_update(step)
        found.append(optimizer.param_groups[0]["lr"])
    return found


@pytest.mark.paper("RM-04")
def test_a_step_schedule_falls_every_few_epochs() -> None:
    found = rates_by_step(28, per_epoch=4, epochs=7, warmup_epochs=0, decay_epochs=3)
    assert found == pytest.approx([1e-2] * 12 + [1e-3] * 12 + [1e-4] * 4)


def test_a_step_schedule_with_a_list_falls_as_each_of_its_epochs_ends() -> None:
    found = rates_by_step(16, per_epoch=2, epochs=8, warmup_epochs=0, decay_epochs=[3, 5])
    assert found == pytest.approx([1e-2] * 6 + [1e-3] * 4 + [1e-4] * 6)


def test_the_falls_of_a_step_schedule_count_from_the_start_of_training() -> None:
    found = rates_by_step(6, per_epoch=2, epochs=4, warmup_epochs=1, decay_epochs=2, decay_rate=0.5)
    assert found == pytest.approx([0, 5e-3, 1e-2, 1e-2, 5e-3, 5e-3])

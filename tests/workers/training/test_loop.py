"""The training loop.

What a step is made of, and that a head or an evaluation shifts nothing of it.
"""

import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.settings import BackboneSettings
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.values import changed
from vtjobs.workers.checkpoints.weights import load_weights
from vtjobs.workers.data.batches import EvalSource, normaliser
from vtjobs.workers.data.datasets import load
from vtjobs.workers.models.backbones import build
from vtjobs.workers.models.depth import depth
from vtjobs.workers.training import objective
from vtjobs.workers.training.evaluate import Diverged
from vtjobs.workers.training.loop import Training

from ...support.ranks import Ranks
from ...support.training import (
    CONVNET,
    CPU,
    EVERYTHING,
    VIT,
    contents,
    differences,
    newest,
    run_spec,
    training,
    weights_of,
)

pytestmark = pytest.mark.training

REGULARISED = {**EVERYTHING, "precision": "fp32", "virtual_ranks": 2}


class Watch:
    """What goes into a run's backbone and what its dropout and drop path do, for two steps."""

    def __init__(self, spec: RunSpec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[Tensor] = []
        run = training(spec, folder)
        self.start = weights_of(run.trainee.backbone)
        run.trainee.backbone.register_forward_pre_hook(lambda _, inputs: self._note(inputs[0]))
        patch_embed = run.trainee.backbone.patch_embed
        assert isinstance(patch_embed, nn.Module)
        patch_embed.register_forward_pre_hook(lambda _, inputs: self._note(inputs[0]))
        for layer in run.trainee.backbone.modules():
            if isinstance(layer, nn.Dropout) or type(layer).__name__ == "DropPath":
                layer.register_forward_hook(self._mask)
        targets = F.cross_entropy

        def cross_entropy(logits: Tensor, labels: Tensor, **more: Any) -> Tensor:
            if logits.ndim == 2 and logits.shape[1] == 10:
                self._note(labels)
            return targets(logits, labels, **more)

        with monkeypatch.context() as patch:
            patch.setattr(objective.F, "cross_entropy", cross_entropy)
            run.trainee.train()
            for step in range(2):
                run.step = step
                run._one_step()

    def _note(self, value: Tensor) -> None:
        self.seen.append(value.detach().clone())

    def _mask(self, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        kept = (output != 0) | (inputs[0] == 0)
        self._note(kept)


@pytest.mark.paper("DR-11", "DR-39")
@pytest.mark.parametrize("head", ["drloc", "relvit"])
def test_a_head_leaves_the_inputs_targets_and_masks_of_its_baseline_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    plain = Watch(run_spec(VIT, **REGULARISED), tmp_path / "plain", monkeypatch)
    beside = Watch(run_spec(VIT, head, **REGULARISED), tmp_path / "beside", monkeypatch)
    assert differences(plain.start, beside.start) == []
    assert len(plain.seen) > 10
    assert any(value.dtype == torch.bool and not value.all() for value in plain.seen)
    assert differences(plain.seen, beside.seen) == []


@pytest.mark.paper("DR-05")
@pytest.mark.parametrize("head", ["drloc", "relvit"])
def test_a_head_of_weight_zero_trains_the_baseline_bit_for_bit(tmp_path: Path, head: str) -> None:
    ends = []
    for spec in (
        run_spec(VIT, **REGULARISED),
        run_spec(VIT, head, params={"weight": 0.0}, **REGULARISED),
    ):
        run = training(spec, tmp_path / spec.run_id)
        assert run.run()
        ends.append(weights_of(run.trainee.backbone))
    assert differences(*ends) == []


@pytest.mark.parametrize("backbone", [VIT, CONVNET])
def test_how_often_a_run_is_evaluated_changes_nothing_in_its_weights(
    tmp_path: Path, backbone: BackboneSettings
) -> None:
    ends = []
    for every in (1, 2, 5):
        spec = run_spec(backbone, "drloc", **{**REGULARISED, "epochs": 3})
        run = training(spec, tmp_path / str(every), evaluate_every=every)
        assert run.run()
        ends.append(
            weights_of(run.trainee)
            | {f"ema.{name}": value for name, value in weights_of(run.ema).items()}
        )
    assert differences(ends[0], ends[1]) == [] and differences(ends[0], ends[2]) == []


@pytest.mark.paper("CA-06")
@pytest.mark.parametrize("head", ["supervised", "relvit"])
def test_what_blocks_add_is_recorded_with_each_evaluation_and_changes_no_weight(
    tmp_path: Path, head: str
) -> None:
    params = {"tasks": ["dist"], "mega": 2, "labels": False} if head == "relvit" else None
    spec = run_spec(VIT, head, params=params, **{**REGULARISED, "epochs": 5})
    ends, told = [], []
    for records in (False, True):
        told.clear()
        run = training(
            spec, tmp_path / str(records), record_depth=records, evaluate_every=2,
            report=lambda kind, **event: told.append(event["metrics"]) if kind == "epoch" else None,
        )  # fmt: skip
        assert run.run()
        ends.append(weights_of(run.trainee))
    assert differences(*ends) == []
    blocks = len(run.trainee.backbone.blocks)
    names = {
        f"depth_{part}_{block:02d}" for part in ("mixing", "mlp") for block in range(1, blocks + 1)
    }
    found = [{name for name in metrics if name.startswith("depth_")} for metrics in told]
    assert found == [set(), names, set(), names, names]
    if head == "supervised":
        source = run.examiner.sources["test"]
        (images, _), *_ = source.batches()
        last = depth(run.trainee.backbone.eval(), images)
        assert [told[-1][f"depth_mixing_{one.block:02d}"] for one in last] == [
            one.mixing for one in last
        ]


def test_a_network_without_such_blocks_is_trained_and_records_nothing(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    report = lambda kind, **event: told.append(event["metrics"]) if kind == "epoch" else None  # noqa: E731
    run = training(run_spec(CONVNET, epochs=1), tmp_path, record_depth=True, report=report)
    assert run.run()
    assert told and not any(name.startswith("depth_") for name in told[0])


def test_the_last_epoch_is_always_evaluated(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    run = training(
        run_spec(epochs=3), tmp_path, evaluate_every=2,
        report=lambda kind, **event: told.append((kind, event["epoch"])) if kind == "evaluation" else None,
    )  # fmt: skip
    assert run.run()
    assert told == [("evaluation", 2), ("evaluation", 3)]


def _first_gradient(
    spec: RunSpec, folder: Path, step: int, **plan: Any
) -> tuple[Training, dict[str, Tensor]]:
    """Return the gradient that the optimizer is given at a step."""
    run = training(spec, folder, **plan)
    found: dict[str, Tensor] = {}
    named = dict(run.trainee.named_parameters())
    run._update = lambda: found.update(  # type: ignore[method-assign]
        {
            name: parameter.grad.clone()
            for name, parameter in named.items()
            if parameter.grad is not None
        }
    )
    run.trainee.train()
    run.step = step
    run._one_step()
    return run, found


@pytest.mark.parametrize("virtual_ranks", [1, 4])
@pytest.mark.parametrize("step", [0, 3])
def test_a_step_follows_the_mean_over_all_its_images_however_they_are_shared(
    tmp_path: Path, virtual_ranks: int, step: int
) -> None:
    # Step 3 has 131 images, in four shares of 33 and 32.
    spec = run_spec(VIT, crop="none", virtual_ranks=virtual_ranks, label_smoothing=0.1)
    run, found = _first_gradient(spec, tmp_path, step)
    indices = torch.cat(run.order.step(0, step))
    mean, std = normaliser(spec.dataset, CPU)
    images = (run.source.images[indices].float() - mean) / std  # type: ignore[attr-defined]
    run.trainee.zero_grad()
    loss = F.cross_entropy(run.trainee(images)[0], run.source.labels[indices], label_smoothing=0.1)  # type: ignore[attr-defined]
    loss.backward()
    for name, parameter in run.trainee.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.paper("DR-40")
@pytest.mark.parametrize("split", [2, 3])
@pytest.mark.parametrize("head", ["supervised", "drloc", "relvit"])
def test_the_cut_into_micro_batches_does_not_change_a_step(
    tmp_path: Path, head: str, split: int
) -> None:
    """Nor the pairs that a head draws for it."""
    spec = run_spec(VIT, head, mixup=0.8, cutmix=1.0, flip=0.5)
    _, whole = _first_gradient(spec, tmp_path / "whole", 0)
    _, halved = _first_gradient(spec, tmp_path / "halved", 0, micro_split=split)
    torch.testing.assert_close(halved, whole, rtol=1e-3, atol=1e-6)


@pytest.mark.paper("DR-05", "DR-76")
def test_the_total_loss_is_the_entropy_plus_the_weighted_loss_of_the_head(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    report = lambda kind, **event: told.append(event["metrics"]) if kind == "epoch" else None  # noqa: E731
    assert training(run_spec(VIT, "drloc", epochs=1), tmp_path, report=report).run()
    expected = told[0]["train_cross_entropy"] + 0.5 * told[0]["train_drloc_l1"]
    assert told[0]["train_loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("val", [None, 0.2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_description_says_how_many_steps_its_training_takes(
    tmp_path: Path, drop_last: bool, val: float | None
) -> None:
    spec = run_spec(epochs=3, drop_last=drop_last)
    spec = changed(spec, dataset=changed(spec.dataset, val=val))
    assert training(spec, tmp_path).total_steps == spec.steps


@pytest.mark.paper("DR-02")
def test_a_head_draws_new_pairs_for_every_image_at_every_step(tmp_path: Path) -> None:
    one = training(run_spec(VIT, head="drloc", params={"grid": 2}, epochs=2), tmp_path)
    drawn: list[Tensor] = []
    draw_parts = one.trainee.draw_parts

    def kept(*given: Any) -> Any:
        found = draw_parts(*given)
        drawn.extend(pairs for part in found for pairs in part)
        return found

    one.trainee.draw_parts = kept  # type: ignore[method-assign]
    assert one.run()
    assert len(drawn) == one.total_steps > 2
    # Of each image: two places a pair.
    of_images = torch.cat([pairs.transpose(0, 1).flatten(1) for pairs in drawn])
    assert len(of_images) == 2 * 899
    assert len(of_images.unique(dim=0)) == len(of_images)


def test_the_learning_rate_that_is_reported_is_the_last_steps(tmp_path: Path) -> None:
    told: list[float] = []
    report = lambda kind, **event: told.append(event["metrics"]["lr"]) if kind == "epoch" else None  # noqa: E731
    assert training(run_spec(epochs=2, lr=1e-3, warmup_epochs=0.5), tmp_path, report=report).run()
    assert told == pytest.approx([1e-3 / 2 * (1 + math.cos(math.pi * step / 8)) for step in (3, 7)])


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"lr": 1e30, "optimizer": "sgd", "warmup_epochs": 0.0}, "the loss is nan"),
        # The weights break with the only step, so the scores alone can tell.
        (
            {"lr": 1e38, "optimizer": "sgd", "warmup_epochs": 0.0, "batch_size": 899, "epochs": 1},
            "the test loss is",
        ),
    ],
)
def test_a_run_whose_numbers_are_no_longer_finite_has_diverged(
    tmp_path: Path, recipe: dict[str, Any], words: str
) -> None:
    told: list[str] = []
    run = training(run_spec(VIT, **recipe), tmp_path, report=lambda kind, **_: told.append(kind))
    with pytest.raises(Diverged, match=words):
        run.run()
    assert "evaluation" not in told and newest(tmp_path, run.plan.run_id) is None


def test_an_infinite_gradient_ends_in_divergence_even_when_it_is_clipped(tmp_path: Path) -> None:
    run = training(run_spec(VIT, clip_grad=1.0), tmp_path)
    parameter = next(run.trainee.backbone.parameters())
    parameter.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(Diverged):
        run.run()


def test_a_gradient_that_overflows_fp16_costs_one_step_and_not_the_run(tmp_path: Path) -> None:
    run = training(run_spec(VIT, precision="fp16", epochs=1), tmp_path)
    parameter = next(run.trainee.backbone.parameters())
    hits: list[int] = []

    def once(gradient: Tensor) -> Tensor:
        hits.append(1)
        return gradient * math.inf if len(hits) == 1 else gradient

    parameter.register_hook(once)
    scale = run.numerics.scaler.get_scale()
    assert run.run()
    assert run.numerics.scaler.get_scale() == scale / 2
    assert newest(tmp_path, run.plan.run_id) is not None


@pytest.mark.paper("PC-07")
def test_a_run_starts_from_its_parents_weights_but_for_a_classifier_of_another_size(
    tmp_path: Path,
) -> None:
    parent = training(run_spec(VIT, epochs=1), tmp_path / "parent")
    assert parent.run()
    last = newest(tmp_path / "parent", parent.plan.run_id)
    assert last is not None
    weights = contents(last)["model.safetensors"]
    child = training(run_spec(VIT, seed=5), tmp_path / "child", init=last / "model.safetensors")
    assert differences(weights_of(child.trainee.backbone), weights) == []
    assert child.global_step == 0


def test_only_the_two_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    run = training(run_spec(epochs=1), tmp_path, checkpoint_every_s=0.0)
    assert run.run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000003", "step-000000004"]


def test_a_run_that_a_higher_attempt_has_claimed_removes_no_checkpoint(tmp_path: Path) -> None:
    training(run_spec(epochs=3), tmp_path, checkpoint_every_s=0, superseded=lambda: True).run()
    assert len(list(tmp_path.glob("step-*"))) >= 3


@pytest.mark.paper("DE-17", "VA-04")
def test_each_set_of_a_run_is_scored_apart_and_the_weights_do_not_depend_on_it(
    tmp_path: Path,
) -> None:
    plain = run_spec(epochs=1, batch_size=128)
    spec = changed(plain, dataset=catalogue.dataset("digits300"))
    found: dict[str, dict[str, float]] = {}

    def report(kind: str, **event: Any) -> None:
        if kind == "evaluation":
            found[event["set"]] = event["metrics"]

    ends = []
    for sets in ((), ("independent",)):
        one = training(spec, tmp_path / str(len(sets)), sets=sets, report=report)
        assert one.run()
        ends.append(weights_of(one.trainee.backbone))
    assert differences(*ends) == []
    assert {name: scores["n"] for name, scores in found.items()} == {
        "test": 749,
        "independent": 748,
    }
    held = changed(spec, dataset=changed(spec.dataset, val=0.2))
    assert training(held, tmp_path / "held", report=report).run()
    assert found["val"]["n"] == 60


def _bits(place: Path) -> dict[str, list[bool]]:
    with safe_open(str(place / "correct.safetensors"), framework="np") as stored:
        sizes = stored.metadata()
        return {
            name: (
                numpy.unpackbits(stored.get_tensor(name), count=int(sizes[name]))
                .astype(bool)
                .tolist()
            )
            for name in stored.keys()
        }


@pytest.mark.paper("DE-14")
@pytest.mark.parametrize("world_size", [1, 3])
def test_the_last_checkpoint_says_what_the_model_chooses_and_where_it_is_right(
    ranks: Ranks, tmp_path: Path, world_size: int
) -> None:
    spec = run_spec(epochs=2, virtual_ranks=3, batch_size=255)
    ended = ranks.train(spec, tmp_path / "run", world_size=world_size, checkpoint_every_s=0.0)
    assert set(ended.statuses) == {0}, ended.text
    last = newest(tmp_path / "run", spec.run_id)
    assert last is not None
    found = _bits(last)
    scores = [event["metrics"] for event in ended.events if event["kind"] == "evaluation"][-1]
    assert len(found["test"]) == scores["n"] == 898
    assert 100 * sum(found["test"]) / 898 == pytest.approx(scores["top1"])
    # As the model itself says of each image, in the order of the set.
    model = build(spec.backbone, spec.shape)
    load_weights(model, last / "model.safetensors")
    source = EvalSource(
        load(spec.dataset, "test", data_root=tmp_path, paths={}), spec.dataset, spec.recipe, CPU
    )
    model.eval()
    with torch.no_grad():
        said = [
            (int(choice), bool(choice == label))
            for batch in source.batches()
            if batch
            for choice, label in zip(model(batch[0]).argmax(1), batch[1], strict=True)
        ]
    wanted = [flag for _, flag in said]
    assert sum(a != b for a, b in zip(found["test"], wanted, strict=True)) <= 1
    chosen = load_file(str(last / "chosen.safetensors"))
    assert chosen["test"].dtype == torch.int16
    assert sum(a != b for a, (b, _) in zip(chosen["test"].tolist(), said, strict=True)) <= 1
    earlier = [place for place in (tmp_path / "run").glob("step-*") if place != last]
    kept = [
        name
        for name in ("correct", "chosen")
        for place in earlier
        if (place / f"{name}.safetensors").exists()
    ]
    assert earlier and not kept


class _Reads(TorchDispatchMode):
    """Counts how often a tensor's value is asked for, which waits for a GPU."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("head", ["supervised", "drloc", "relvit"])
def test_a_step_waits_for_no_value(
    tmp_path: Path, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {**REGULARISED, "epochs": 1, "crop": "resized", "crop_padding": 4}
    recipe |= {"auto_augment": "rand-m9-mstd0.5-inc1"}
    run = training(run_spec(VIT, head, **recipe), tmp_path)
    # On the CPU it looks at the loss in every step.
    monkeypatch.setattr(run.sums, "check_finite", lambda *_: None)
    run.trainee.train()
    run._one_step()
    # AdamW counts its steps, on the CPU also where it trains on a GPU.
    monkeypatch.setattr(run.optimizer, "step", lambda: None)
    with _Reads() as reads:
        run._one_step()
    assert reads.count == 0

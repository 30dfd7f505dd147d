"""Segmentation: what a run on masks lowers, how it is scored, and that it ends the same again."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import confusion_matrix, jaccard_score, recall_score
from torch import Tensor, nn
from torch.nn import functional as F

from vtjobs.jobs.run.spec import RunSpec
from vtjobs.workers.data.mask_pipeline import Scene
from vtjobs.workers.data.masks import IGNORED
from vtjobs.workers.errors import DataError
from vtjobs.workers.models.segmenter import MaskLogits
from vtjobs.workers.training.group import Group
from vtjobs.workers.training.masks import (
    MaskObjective,
    evaluate_masks,
    of_pixels,
    predicted,
    scores_of,
)
from vtjobs.workers.training.trainee import make_numerics

from ...support.mask_images import mask_folder
from ...support.ranks import Ranks
from ...support.training import (
    ALONE,
    CONVNET,
    CPU,
    EVERYTHING,
    MASKED,
    VIT,
    contents,
    differences,
    newest,
    on_masks,
    run_spec,
    training,
)

SCORES = ("miou", "macc", "pixel_acc")
FP32 = make_numerics(CPU, precision="fp32")


# The loss ------------------------------------------------------------------------------------------


def test_the_loss_is_the_mean_over_the_pixels_of_an_image_and_those_without_a_class_count_as_0() -> (
    None
):
    torch.manual_seed(0)
    logits, targets = torch.randn(3, 5, 4, 6), torch.randint(5, (3, 8, 12))
    targets[:, :2] = IGNORED
    shown = F.interpolate(logits, size=(8, 12), mode="bilinear", align_corners=False)
    expected = 0.0
    for one, mask in zip(shown, targets, strict=True):
        known = mask != IGNORED
        chances = one.log_softmax(0).movedim(0, -1)[known]
        expected -= chances.gather(1, mask[known][:, None]).sum().item() / mask.numel()
    assert of_pixels(logits, targets).item() == pytest.approx(expected, rel=1e-5)


def test_the_auxiliary_classifier_weighs_0_4() -> None:
    torch.manual_seed(0)
    logits = MaskLogits(torch.randn(2, 3, 4, 4), torch.randn(2, 3, 2, 2))
    targets = torch.randint(3, (2, 8, 8))
    total, parts = MaskObjective()(torch.zeros(2, 3, 8, 8), logits, targets, None, 0.0)
    assert parts["cross_entropy"] == of_pixels(logits.pixels, targets)
    assert total == parts["cross_entropy"] + 0.4 * of_pixels(logits.auxiliary, targets)


# Scores --------------------------------------------------------------------------------------------


def test_miou_and_macc_are_those_of_scikit_learn() -> None:
    draw = torch.Generator().manual_seed(0)
    right = torch.randint(4, (500,), generator=draw)
    given = torch.where(
        torch.rand(500, generator=draw) < 0.7, right, torch.randint(4, (500,), generator=draw)
    )
    found = scores_of(torch.from_numpy(confusion_matrix(right, given)).double())
    assert found["miou"] == pytest.approx(100 * jaccard_score(right, given, average="macro"))
    assert found["macc"] == pytest.approx(100 * recall_score(right, given, average="macro"))
    assert found["pixel_acc"] == pytest.approx(100 * (right == given).double().mean().item())


def test_a_class_that_is_nowhere_is_no_part_of_the_mean() -> None:
    counts = torch.tensor([[3.0, 1.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0]])
    assert scores_of(counts.double())["miou"] == pytest.approx(100 * (3 / 4 + 4 / 5) / 2)


class Brightness(nn.Module):
    """Logits of two classes by the pixels themselves: the red channel, and its negative."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([images[:, 0], -images[:, 0]], dim=1)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (8, 19), (21, 8), (5, 30), (3, 4)])
def test_windows_cover_every_pixel_of_an_image_once_or_more(height: int, width: int) -> None:
    image = torch.randn(1, 3, height, width)
    scene = Scene([image], torch.zeros(height, width, dtype=torch.int64))
    found = predicted(Brightness().eval(), scene, 8, FP32)
    assert torch.equal(found, (image[0, 0] < 0).long())


class Whole(Brightness):
    """Takes images of any size, and remembers which it was shown."""

    takes_any_size = True

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[int, ...]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.shown.append(tuple(images.shape[2:]))
        return super().forward(images)


def test_a_backbone_that_takes_any_size_is_shown_the_whole_image_at_once() -> None:
    image = torch.randn(1, 3, 20, 70)
    model = Whole().eval()
    found = predicted(model, Scene([image], torch.zeros(20, 70, dtype=torch.int64)), 8, FP32)
    assert torch.equal(found, (image[0, 0] < 0).long())
    assert model.shown == [(32, 96)], "its sides are filled up to a multiple of 32"


def test_a_set_without_a_class_anywhere_has_no_score() -> None:
    scene = Scene([torch.zeros(1, 3, 8, 8)], torch.full((8, 8), IGNORED))
    with pytest.raises(DataError, match="no pixel of this set has a class"):
        evaluate_masks(Brightness(), Scenes([scene], 2, 8), ALONE, FP32)  # type: ignore[arg-type]


class Scenes:
    """A set of scenes in memory."""

    def __init__(self, scenes: list[Scene], classes: int, side: int) -> None:
        self._scenes = scenes
        self.size, self.classes, self.side = len(scenes), classes, side

    def scenes(self) -> Any:
        return iter(self._scenes)


class LeftHalf(nn.Module):
    """Says class 1 of the left half of what it is shown, class 0 of the right one, more surely."""

    def forward(self, images: Tensor) -> Tensor:
        ones = torch.zeros(len(images), 2, *images.shape[2:])
        half = images.shape[3] // 2
        ones[:, 1, :, :half], ones[:, 0, :, half:] = 1.0, 3.0
        return ones


def test_a_mirror_image_is_mirrored_back_before_the_mean_is_taken() -> None:
    scene = Scene([torch.zeros(1, 3, 4, 4)], torch.zeros(4, 4, dtype=torch.int64))
    once, twice = (
        evaluate_masks(LeftHalf(), Scenes([scene], 2, 4), ALONE, FP32, mirrored=mirrored)  # type: ignore[arg-type]
        for mirrored in (False, True)
    )
    assert once is not None and twice is not None
    assert (once["pixel_acc"], twice["pixel_acc"]) == (50.0, 100.0)


# Runs ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return mask_folder(tmp_path / "scenes", train=22, test=5)


def _spec(folder: Path, **more: Any) -> RunSpec:
    return on_masks(run_spec(**{**EVERYTHING, **MASKED, **more}), folder)


@pytest.mark.training
@pytest.mark.parametrize(
    ("world_size", "workers", "moment"),
    [(1, 0, {"die_at": 2}), (2, 1, {"stop_at": 4})],
)
def test_an_interrupted_run_ends_with_the_weights_of_an_uninterrupted_one(
    ranks: Ranks,
    tmp_path: Path,
    folder: Path,
    world_size: int,
    workers: int,
    moment: dict[str, int],
) -> None:
    spec = _spec(folder)
    paths = {spec.dataset.fingerprint: str(folder)}
    plan = {"paths": paths, "world_size": world_size, "workers": workers}
    whole = ranks.train(spec, tmp_path / "whole", checkpoint_every_s=1e9, **plan)
    assert set(whole.statuses) == {0}, whole.text
    cut = ranks.train(spec, tmp_path / "cut", checkpoint_every_s=0.0, **plan, **moment)
    assert -signal.SIGKILL in cut.statuses or "stop_at" in moment, cut
    resume = newest(tmp_path / "cut", spec.run_id)
    assert resume is not None
    again = ranks.train(spec, tmp_path / "again", resume=resume, **plan)
    assert set(again.statuses) == {0}, again.text
    ends = [newest(tmp_path / place, spec.run_id) for place in ("whole", "again")]
    one, other = (contents(end) for end in ends if end is not None)
    assert differences(one, other) == []


@pytest.mark.training
def test_one_rank_and_two_have_the_same_losses_and_scores(
    ranks: Ranks, tmp_path: Path, folder: Path
) -> None:
    spec = _spec(folder, precision="fp32")
    paths = {spec.dataset.fingerprint: str(folder)}
    told = []
    for world_size in (1, 2):
        place = tmp_path / f"on-{world_size}"
        ended = ranks.train(spec, place, world_size=world_size, paths=paths)
        assert set(ended.statuses) == {0}, ended.text
        told.append([e["metrics"] for e in ended.events if e["kind"] in ("epoch", "evaluation")])
    for alone, together in zip(*told, strict=True):
        alone.pop("epoch_seconds", None), together.pop("epoch_seconds", None)
        # One pixel of a small class is part of a percent.
        scores = {name for name in alone if name.removeprefix("ema_") in SCORES}
        for name, value in alone.items():
            rounding = {"abs": 0.5} if name in scores else {"rel": 1e-3}
            assert together[name] == pytest.approx(value, **rounding), name


@pytest.mark.training
@pytest.mark.parametrize("backbone", [VIT, CONVNET], ids=["vit", "convnet"])
def test_a_run_learns_the_masks(tmp_path: Path, folder: Path, backbone: Any) -> None:
    easy = {"epochs": 20, "lr": 5e-3, "image_size": 32, "color_jitter": 0.0, "rescale": None}
    spec = on_masks(run_spec(backbone, **{**MASKED, **easy}), folder)
    scores: list[dict[str, float]] = []

    def report(kind: str, **told: Any) -> None:
        if kind == "evaluation":
            scores.append(told["metrics"])

    paths = {spec.dataset.fingerprint: str(folder)}
    assert training(spec, tmp_path / "run", report=report, paths=paths).run()
    assert set(scores[-1]) == {"miou", "macc", "pixel_acc", "loss", "n"}
    assert scores[-1]["miou"] > 40 > scores[0]["miou"], scores
    assert scores[-1]["n"] == 5


def test_ranks_score_each_image_once(tmp_path: Path, folder: Path) -> None:
    spec = _spec(folder)
    seen: list[int] = []
    for rank in range(3):
        group = Group(rank=rank, world_size=3, device=CPU)
        made = training(spec, tmp_path, paths={spec.dataset.fingerprint: str(folder)})
        source = made.inputs.__class__(
            spec=spec, plan=made.plan, group=group, streams=made.streams, ahead=made.ahead
        ).scored()["test"]
        scenes = list(source.scenes())
        assert len(scenes) == 2, "every rank is asked as often"
        seen += [int(scene.mask.numel()) for scene in scenes if scene is not None]
    assert len(seen) == 5

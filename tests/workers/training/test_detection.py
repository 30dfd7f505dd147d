"""Detection: what a run on objects lowers, how it is scored, and that it ends the same again."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vtjobs.jobs.run.metrics import OF_TASK
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.workers.data.datasets import load_objects
from vtjobs.workers.data.object_pipeline import Look, ObjectSource
from vtjobs.workers.data.objects import no_objects
from vtjobs.workers.errors import DataError
from vtjobs.workers.models.detected import DetectionLosses, Found
from vtjobs.workers.training.detection import (
    DetectionObjective,
    as_coco,
    evaluate_objects,
    found_in,
    precisions,
    scores_of,
)
from vtjobs.workers.training.trainee import make_numerics

from ...support.object_images import object_folder
from ...support.ranks import Ranks
from ...support.training import (
    ALONE,
    CONVNET,
    CPU,
    EVERYTHING,
    VIT,
    WITH_OBJECTS,
    contents,
    differences,
    newest,
    on_objects,
    run_spec,
    training,
)

FP32 = make_numerics(CPU, precision="fp32")


# The loss ------------------------------------------------------------------------------------------


def test_the_loss_is_the_sum_of_the_parts_and_a_share_counts_by_its_images() -> None:
    losses = DetectionLosses(*torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    images = torch.zeros(3, 3, 8, 8)
    total, parts = DetectionObjective()(images, losses, no_objects(3, (8, 8), CPU), None, 0.0)
    assert total == 3 * 15
    assert {name: value.item() for name, value in parts.items()} == {
        "objectness": 3, "proposals": 6, "classes": 9, "boxes": 12, "masks": 15
    }  # fmt: skip


# Scores --------------------------------------------------------------------------------------------


def _truth(*objects: tuple[int, int, list[float]], images: int = 2) -> dict[str, Any]:
    """Return a set of images, 100 x 100, with objects: image, class and box, filled by its mask."""
    return {
        "images": [{"id": number, "height": 100, "width": 100} for number in range(images)],
        "categories": [{"id": 0}, {"id": 1}],
        "annotations": [
            {
                "id": number,
                "image_id": image,
                "category_id": label,
                "bbox": box,
                "segmentation": [_corners(box)],
                "area": box[2] * box[3],
                "iscrowd": 0,
            }
            for number, (image, label, box) in enumerate(objects, start=1)
        ],
    }


def _corners(box: list[float]) -> list[float]:
    left, top, width, height = box
    right, bottom = left + width, top + height
    return [left, top, right, top, right, bottom, left, bottom]


def _found(*objects: tuple[int, int, list[float], float]) -> list[dict[str, Any]]:
    from pycocotools import mask

    return [
        {
            "image_id": image,
            "category_id": label,
            "bbox": box,
            "score": score,
            "segmentation": mask.frPyObjects([_corners(box)], 100, 100)[0],
        }
        for image, label, box, score in objects
    ]


def _scores(truth: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, float]:
    return scores_of(precisions(truth, found, range(2)))


BOX, OTHER = [10.0, 10.0, 20.0, 20.0], [50.0, 40.0, 30.0, 40.0]


def test_whatever_is_found_where_it_is_scores_100_percent() -> None:
    truth = _truth((0, 0, BOX), (1, 1, OTHER))
    scores = _scores(truth, _found((0, 0, BOX, 0.9), (1, 1, OTHER, 0.8)))
    assert scores["ap_box"] == scores["ap_mask"] == pytest.approx(100)
    assert "ap_large_box" not in scores, "there is no large object"


def test_of_two_classes_one_that_is_never_found_halves_the_score() -> None:
    truth = _truth((0, 0, BOX), (1, 1, OTHER))
    assert _scores(truth, _found((0, 0, BOX, 0.9)))["ap_box"] == pytest.approx(50)


def test_a_box_that_overlaps_by_60_percent_counts_at_the_first_three_of_ten_thresholds() -> None:
    # 15 of 20 pixels a side, 15 · 20 / (20 · 20 + 5 · 20) = 0.6.
    moved = [BOX[0] + 5, BOX[1], 20.0, 20.0]
    scores = _scores(_truth((0, 0, BOX)), _found((0, 0, moved, 0.9)))
    assert scores["ap50_box"] == pytest.approx(100)
    assert scores["ap75_box"] == 0
    assert scores["ap_box"] == pytest.approx(30)


def test_nothing_found_scores_0_and_a_set_without_objects_has_no_score() -> None:
    assert _scores(_truth((0, 0, BOX)), [])["ap_mask"] == 0
    assert _scores(_truth(), []) == {}


def test_a_crowd_is_neither_missed_nor_found_wrongly() -> None:
    truth = _truth((0, 0, BOX), (0, 0, OTHER))
    truth["annotations"][1]["iscrowd"] = 1
    found = _found((0, 0, BOX, 0.9), (0, 0, [52.0, 42.0, 10.0, 10.0], 0.95))
    assert _scores(truth, found)["ap_box"] == pytest.approx(100)


def test_the_scores_are_what_cocos_program_sums_up_however_classes_are_shared() -> None:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    draw = torch.Generator().manual_seed(0)
    real, found = [], []
    for number in range(40):
        left, top, width, height = (torch.rand(4, generator=draw) * 60 + 2).tolist()
        box = [left * 0.6, top * 0.6, width * 0.9, height * 0.9]
        real.append((number % 4, number % 2, box))
        moved = [value + float(torch.randn((), generator=draw)) * 3 for value in box[:2]]
        found.append(
            (number % 4, number % 2, [*moved, *box[2:]], float(torch.rand((), generator=draw)))
        )
    truth, given = _truth(*real, images=4), _found(*found)
    whole = precisions(truth, given, range(2))
    assert torch.allclose(sum(precisions(truth, given, [label]) for label in range(2)), whole)
    theirs: Any = COCO()
    theirs.dataset = truth
    theirs.createIndex()
    for kind, name in (("bbox", "box"), ("segm", "mask")):
        drop = "segmentation" if kind == "bbox" else "bbox"
        rows = [{key: value for key, value in one.items() if key != drop} for one in given]
        judge: Any = COCOeval(theirs, theirs.loadRes(rows), kind)
        judge.evaluate(), judge.accumulate(), judge.summarize()
        ours = scores_of(whole)
        names = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
        for metric, value in zip(names, judge.stats[:6], strict=True):
            assert ours.get(f"{metric}_{name}", -100.0) == pytest.approx(100 * value), metric


def test_while_classes_are_compared_the_agent_hears_of_it_again_and_again() -> None:
    beats: list[int] = []
    found = _found((0, 0, BOX, 0.9))
    precisions(_truth((0, 0, BOX)), found, range(2), beat=lambda: beats.append(1))
    assert len(beats) > 10


class Knowing(nn.Module):
    """Finds a square of eight pixels at a place of the image as it is shown."""

    def forward(self, images: Tensor, sizes: Any) -> list[Found]:
        boxes = torch.tensor([[8.0, 4.0, 16.0, 12.0]])
        return [Found(boxes, torch.tensor([1]), torch.tensor([0.7]), torch.ones(1, 28, 28))]


def test_what_is_found_is_told_in_pixels_of_the_image_as_it_is_stored() -> None:
    look = Look(3, torch.zeros(1, 3, 32, 32), shown=(16, 32), stored=(32, 64))
    found = found_in(Knowing(), look, FP32)
    assert found.boxes.tolist() == [[16, 8, 32, 24]]
    (told,) = as_coco(found, look)
    assert (told["image_id"], told["category_id"], told["bbox"]) == (3, 1, [16, 8, 16, 16])
    from pycocotools import mask

    inside = torch.from_numpy(mask.decode(told["segmentation"])).bool()
    assert inside.shape == (32, 64)
    assert inside[8:24, 16:32].all() and inside.sum() <= 18 * 18


def test_a_set_without_any_object_is_an_error(tmp_path: Path) -> None:
    root = object_folder(tmp_path / "parts", train=1, test=1)
    source = ObjectSource(load_objects(root, "test", classes=2), run_spec().dataset, _recipe(), CPU)
    source.truth = lambda: _truth(images=1)  # type: ignore[method-assign]
    with pytest.raises(DataError, match="no object that could be found"):
        evaluate_objects(Knowing(), source, ALONE, FP32)


def _recipe() -> Any:
    return run_spec(**WITH_OBJECTS).recipe


# Runs ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return object_folder(tmp_path / "parts", train=20, test=5, empty=2)


def _spec(folder: Path, **more: Any) -> RunSpec:
    return on_objects(run_spec(**{**EVERYTHING, **WITH_OBJECTS, **more}), folder)


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
    spec = _spec(folder, precision="fp32", epochs=2)
    paths = {spec.dataset.fingerprint: str(folder)}
    told = []
    for world_size in (1, 2):
        place = tmp_path / f"on-{world_size}"
        ended = ranks.train(spec, place, world_size=world_size, paths=paths)
        assert set(ended.statuses) == {0}, ended.text
        told.append([e["metrics"] for e in ended.events if e["kind"] in ("epoch", "evaluation")])
    for alone, together in zip(*told, strict=True):
        alone.pop("epoch_seconds", None), together.pop("epoch_seconds", None)
        assert alone.keys() == together.keys()
        for name, value in alone.items():
            # Rounding may move one proposal before another.
            rounding = {"abs": 1.0} if "ap" in name else {"rel": 1e-2}
            assert together[name] == pytest.approx(value, **rounding), name


@pytest.mark.training
@pytest.mark.parametrize(
    ("backbone", "size"),
    [(VIT, {"image_size": 48}), (CONVNET, {"image_size": 48, "longest_side": 64})],
    ids=["vit on squares", "convnet on whole images"],
)
def test_a_run_learns_the_objects(
    tmp_path: Path, folder: Path, backbone: Any, size: dict[str, Any]
) -> None:
    easy = {"epochs": 20, "lr": 5e-3, "rescale": None, "decay_epochs": 100, **size}
    spec = on_objects(run_spec(backbone, **{**WITH_OBJECTS, **easy}), folder)
    scores: list[dict[str, float]] = []

    def report(kind: str, **told: Any) -> None:
        if kind == "evaluation":
            scores.append(told["metrics"])

    paths = {spec.dataset.fingerprint: str(folder)}
    made = training(spec, tmp_path / "run", report=report, paths=paths, evaluate_every=20)
    assert made.run()
    assert set(scores[-1]) <= set(OF_TASK["detection"])
    assert scores[-1]["ap50_box"] > 40 and scores[-1]["ap50_mask"] > 40, scores
    assert scores[-1]["n"] == 5

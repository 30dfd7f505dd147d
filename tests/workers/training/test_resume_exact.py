"""An interrupted run ends with the weights of an uninterrupted one, bit for bit."""

import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.run.spec import RunSpec

from ...support.ranks import STOPPED, Ranks
from ...support.training import CONVNET, EVERYTHING, VIT, contents, differences, newest, run_spec

pytestmark = pytest.mark.training

BACKBONES = {"vit": VIT, "convnet": CONVNET, "synced": CONVNET}


# It has to know which image it sees; and what makes it small.
UNMIXED = {"grafit": {"mixup": 0.0, "cutmix": 0.0}}
SMALL = {"grafit": {"views": 2, "dim": 16}}


def _spec(backbone: str, head: str, **more: Any) -> RunSpec:
    changes = (
        {"virtual_ranks": 4, "sync_bn": True} if backbone == "synced" else {"virtual_ranks": 2}
    )
    changes |= {**UNMIXED.get(head, {}), **more}
    return run_spec(BACKBONES[backbone], head, params=SMALL.get(head), **{**EVERYTHING, **changes})


class Reference:
    """The ends of uninterrupted runs, each trained once."""

    def __init__(self, ranks: Ranks, folder: Path) -> None:
        self.ranks = ranks
        self.folder = folder
        self._known: dict[tuple[str, int], tuple[dict[str, Any], list[Any]]] = {}

    def __call__(
        self, spec: RunSpec, world_size: int, **plan: Any
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return the last checkpoint and what was reported of epochs and evaluations."""
        key = (spec.run_id, world_size)
        if key not in self._known:
            place = self.folder / f"{spec.run_id}-{world_size}"
            ended = self.ranks.train(
                spec, place, world_size=world_size, checkpoint_every_s=1e9, **plan
            )
            assert set(ended.statuses) == {0}, ended.text
            last = newest(place, spec.run_id)
            assert last is not None
            self._known[key] = contents(last), numbers(ended.events)
        return self._known[key]


def numbers(events: list[dict[str, Any]]) -> list[Any]:
    """Return what was reported of epochs and evaluations, but for the time they took and used."""
    told = [event for event in events if event["kind"] in ("epoch", "evaluation")]
    for event in told:
        event["metrics"].pop("epoch_seconds", None)
        for times in ("usage", "trained_s"):
            event.pop(times, None)
    return told


@pytest.fixture(scope="session")
def reference(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(ranks, tmp_path_factory.mktemp("reference"))


def _interrupted(
    ranks: Ranks,
    spec: RunSpec,
    folder: Path,
    *,
    world_size: int,
    moments: list[dict[str, int]],
    **plan: Any,
) -> tuple[dict[str, Any], list[Any]]:
    """Train in attempts that end as told, and a last one to the end.

    Return the end and the last reports.
    """
    resume = None
    told: list[Any] = []
    for attempt, moment in enumerate([*moments, {}]):
        place = folder / f"attempt-{attempt}"
        ended = ranks.train(spec, place, world_size=world_size, resume=resume, **plan, **moment)
        told += numbers(ended.events)
        if "die_at" in moment:
            assert -signal.SIGKILL in ended.statuses, ended
        elif "stop_at" in moment:
            assert set(ended.statuses) == {STOPPED}, ended
        else:
            assert set(ended.statuses) == {0}, ended
        resume = newest(place, spec.run_id) or resume
    assert resume is not None
    return contents(resume), told


HEADS = ("supervised", "drloc", "relvit")
# Every pair of head, backbone and number of ranks stands together in one case.
CASES = [
    ("vit", "supervised", 1),
    ("vit", "drloc", 2),
    ("vit", "relvit", 1),
    ("convnet", "supervised", 2),
    ("convnet", "drloc", 1),
    ("convnet", "relvit", 2),
    ("convnet", "grafit", 2),
    ("vit", "grafit", 1),
    # Its shares meet at layers that normalise by the whole batch.
    ("synced", "drloc", 1),
    ("synced", "supervised", 2),
]


# One epoch has 4 steps and as many batches of scores, once for the weights and once for their
# average: 12 moments on one rank, 8 on two.
@pytest.mark.paper("OR-07")
@pytest.mark.parametrize(("backbone", "head", "world_size"), CASES)
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    ranks: Ranks, reference: Reference, tmp_path: Path, backbone: str, head: str, world_size: int
) -> None:
    spec = _spec(backbone, head)
    draw = random.Random(f"{backbone}{head}{world_size}")
    # In the middle of the first epoch, while the first evaluation runs, and wherever it falls
    # afterwards.
    moments = [{"stop_at": draw.randint(1, 2)}, {"stop_at": 4}, {"stop_at": draw.randint(1, 6)}]
    end, told = _interrupted(ranks, spec, tmp_path, world_size=world_size, moments=moments)
    expected, expected_told = reference(spec, world_size)
    assert differences(end, expected) == []
    assert [event for event in told if event["kind"] == "evaluation"] == [
        event for event in expected_told if event["kind"] == "evaluation"
    ]


@pytest.mark.paper("OR-07")
@pytest.mark.parametrize(
    ("backbone", "head", "world_size"), [("vit", "drloc", 1), ("convnet", "relvit", 2)]
)
def test_a_run_whose_rank_was_killed_ends_as_if_it_had_not_been(
    ranks: Ranks, reference: Reference, tmp_path: Path, backbone: str, head: str, world_size: int
) -> None:
    spec = _spec(backbone, head)
    draw = random.Random(f"kill{backbone}{head}{world_size}")
    rank = world_size - 1
    moments = [
        {"die_at": draw.randint(2, 4)},
        {"die_at": draw.randint(2, 6), "die_rank": rank},
        {"die_at": 3},
    ]
    end, _ = _interrupted(
        ranks, spec, tmp_path, world_size=world_size, moments=moments, checkpoint_every_s=0.0
    )
    assert differences(end, reference(spec, world_size)[0]) == []


# Without labels: mega-patches, each patch augmented by itself, all of them shuffled.
PATCHES = {
    "labels": False,
    "positions": False,
    "shuffle": True,
    "mega": 2,
    "patch_augment": True,
    "tasks": ["sprel"],
}


@pytest.mark.parametrize("world_size", [1, 2])
def test_training_without_labels_that_was_stopped_and_killed_ends_as_if_it_had_not_been(
    ranks: Ranks, reference: Reference, tmp_path: Path, world_size: int
) -> None:
    changes = {"mixup": 0.0, "cutmix": 0.0, "label_smoothing": 0.0, "image_size": 24}
    spec = run_spec(VIT, "relvit", params=PATCHES, **{**EVERYTHING, "virtual_ranks": 2, **changes})
    moments = [{"stop_at": 2}, {"die_at": 3}, {"stop_at": 1}]
    end, told = _interrupted(
        ranks, spec, tmp_path, world_size=world_size, moments=moments, checkpoint_every_s=0.0
    )
    expected, _ = reference(spec, world_size)
    assert differences(end, expected) == []
    scores = [event["metrics"] for event in told if event["kind"] == "evaluation"]
    assert {name for metrics in scores for name in metrics} == {
        "loss",
        "n",
        "relvit_loss",
        "sprel_top1",
    }


def test_a_kill_before_the_first_checkpoint_starts_anew_with_the_same_end(
    ranks: Ranks, reference: Reference, tmp_path: Path
) -> None:
    spec = _spec("vit", "supervised")
    end, _ = _interrupted(
        ranks, spec, tmp_path, world_size=1, moments=[{"die_at": 1}], checkpoint_every_s=0.0
    )
    assert differences(end, reference(spec, 1)[0]) == []


def test_an_epoch_that_was_interrupted_reports_the_numbers_of_one_that_was_not(
    ranks: Ranks, reference: Reference, tmp_path: Path
) -> None:
    spec = _spec("vit", "drloc")
    for world_size in (1, 2):
        folder = tmp_path / str(world_size)
        _, told = _interrupted(
            ranks, spec, folder, world_size=world_size, moments=[{"stop_at": 2}, {"stop_at": 3}]
        )
        assert told == reference(spec, world_size)[1]


def test_the_scores_do_not_depend_on_when_a_run_is_evaluated(
    ranks: Ranks, reference: Reference, tmp_path: Path
) -> None:
    spec = _spec("convnet", "drloc")
    ended = ranks.train(
        spec, tmp_path / "seldom", world_size=2, evaluate_every=2, checkpoint_every_s=1e9
    )
    assert set(ended.statuses) == {0}, ended.text
    last = newest(tmp_path / "seldom", spec.run_id)
    assert last is not None
    expected, told = reference(spec, 2)
    assert differences(contents(last), expected) == []
    assert [event for event in told if event["kind"] == "evaluation"][1:] == [
        event for event in numbers(ended.events) if event["kind"] == "evaluation"
    ]


@pytest.mark.parametrize(("workers", "pipeline"), [(0, "pil"), (2, "pil"), (2, "hybrid")])
def test_a_run_on_pillow_images_resumes_exactly_with_any_number_of_loader_workers(
    ranks: Ranks, reference: Reference, tmp_path: Path, workers: int, pipeline: str
) -> None:
    spec = _spec(
        "vit", "relvit", pipeline=pipeline, crop="resized", crop_scale=(0.5, 1.0), auto_augment="rand-m9-mstd0.5-inc1",
        color_jitter=0.0, epochs=2,
    )  # fmt: skip
    # In the first epoch, and in the second: the loader's workers go on from one to the next.
    moments = [{"stop_at": 2}, {"die_at": 12}]
    plan = {"checkpoint_every_s": 0.0, "workers": workers}
    end, _ = _interrupted(ranks, spec, tmp_path, world_size=1, moments=moments, **plan)
    assert differences(end, reference(spec, 1, workers=1)[0]) == []
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.long
@pytest.mark.parametrize(("backbone", "head"), [("vit", "drloc"), ("convnet", "relvit")])
def test_a_compiled_run_of_two_ranks_ends_as_if_it_had_not_been_stopped(
    ranks: Ranks, reference: Reference, tmp_path: Path, backbone: str, head: str
) -> None:
    spec = _spec(backbone, head, compile=True, precision="bf16")
    moments = [{"stop_at": 3}]
    end, _ = _interrupted(ranks, spec, tmp_path, world_size=2, moments=moments)
    assert differences(end, reference(spec, 2)[0]) == []


@pytest.mark.long
@pytest.mark.parametrize(("world_size", "first"), [(1, 1), (1, 9), (1, 17), (2, 1), (2, 9)])
def test_a_run_can_be_killed_at_every_moment(
    ranks: Ranks, reference: Reference, tmp_path: Path, world_size: int, first: int
) -> None:
    spec = _spec("convnet", "drloc")
    for moment in range(first, first + 8):
        folder = tmp_path / str(moment)
        moments = [{"die_at": moment, "die_rank": moment % world_size}]
        end, _ = _interrupted(
            ranks, spec, folder, world_size=world_size, moments=moments, checkpoint_every_s=0.0
        )
        assert differences(end, reference(spec, world_size)[0]) == [], moment

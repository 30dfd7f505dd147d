"""A run that follows others in one process ends as it does alone, bit for bit."""

import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.config.shared_memory import Fitted
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.workers.agent.lanes import Lane
from vtjobs.workers.agent.rank_group import RankGroup
from vtjobs.workers.agent.template_client import Forge
from vtjobs.workers.orders import Order

from ...support.families import FAMILIES, HEADS, family_spec, suits
from ...support.lab import a_template, wait_for
from ...support.mask_images import mask_folder
from ...support.training import (
    CONVNET,
    EVERYTHING,
    MASKED,
    ORIGIN,
    VIT,
    contents,
    differences,
    image_folder,
    newest,
    on_folder,
    on_masks,
    run_spec,
)

pytestmark = pytest.mark.training

# Seconds without a sign of life after which a rank counts as hanging.
HANG_S = 300.0


def train(
    forge: Forge,
    spec: RunSpec,
    folder: Path,
    *,
    paths: dict[str, str],
    reuse: str,
    workers: int = 0,
    lane: Lane | None = None,
) -> tuple[int, Any, list[Any]]:
    """Do a run; return its process, its last checkpoint, and the scores that it reported."""
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "spec.json").write_text(spec.canonical())
    order = Order(
        run_id=spec.run_id,
        attempt=1,
        spec=str(folder / "run" / "spec.json"),
        folder=str(folder),
        nodes=1,
        world_size=1,
        device="cpu",
        threads=1,
        data_root=str(folder),
        paths=paths,
        resume=None,
        init=None,
        parent=None,
        checkpoint_every_s=1e9,
        evaluate_every=1,
        sets=(),
        micro_split=1,
        pipeline=spec.recipe.pipeline,
        origin=ORIGIN,
        collective_s=HANG_S,
        reuse=reuse,
    )
    group = RankGroup(folder, hang_s=HANG_S, mirror=False)
    group.start(
        forge,
        order,
        first=0,
        count=1,
        lane=lane or Lane(index=0 if reuse else 1),
        processes=Fitted(workers=workers, decoders=workers),
        listener=None,
        now=time.monotonic(),
    )
    scores: list[Any] = []

    def has_ended() -> bool:
        forge.hear()
        for _, event in group.listen(time.monotonic()):
            if event["kind"] == "evaluation":
                scores.append(event["metrics"])
        return group.are_gone

    # A graph that is compiled beside other work takes longer than a test usually waits.
    wait_for(has_ended, seconds=HANG_S)
    (rank,) = group.processes
    group.close()
    last = newest(folder, spec.run_id)
    assert rank.status == 0 and rank.pid is not None and last is not None, (
        folder / "rank-0.log"
    ).read_text()
    return rank.pid, contents(last), scores


Run = tuple[str, RunSpec, dict[str, str]]
"""What it is called, itself, and where its files lie."""


def assert_same_as_alone(forge: Forge, folder: Path, runs: list[Run], workers: int = 0) -> None:
    """Do the runs one after another in one process, and each in a process of its own."""
    ends = []
    for reuse in ("yes", ""):
        one = partial(train, forge, workers=workers, reuse=reuse)
        place = folder / (reuse or "alone")
        ends.append(
            [
                one(spec, place / str(number), paths=paths)
                for number, (_, spec, paths) in enumerate(runs)
            ]
        )
    for number, (name, *_) in enumerate(runs):
        (_, *warm), (_, *alone) = (found[number] for found in ends)
        assert differences(warm, alone) == [], f"{name}, after {number} others"
    assert len({pid for pid, *_ in ends[0]}) == 1


def test_a_rank_runs_on_the_cores_of_its_gpus_socket(forge: Forge, tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    lane = Lane(index=7, gpus=["0"], cores={"0": frozenset({core})})
    spec = run_spec(VIT, epochs=1, warmup_epochs=0.0)
    pid, *_ = train(forge, spec, tmp_path, paths={}, reuse="yes", lane=lane)
    # It waits for the next run.
    assert os.sched_getaffinity(pid) == {core}


# The rest of the pairs takes as long again, and shows the same.
TURNS = [
    pytest.param(turn, marks=[pytest.mark.long] if turn > 1 else []) for turn in range(len(HEADS))
]


@pytest.mark.parametrize("turn", TURNS)
def test_every_family_beside_every_head_ends_as_it_does_alone(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    images = image_folder(tmp_path / "images", train=4, test=2, size=(32, 32))
    usual = {
        "epochs": 2,
        "warmup_epochs": 0.0,
        "batch_size": 4,
        "image_size": 32,
        "ema_decay": 0.9,
        "drop_path": 0.1,
    }
    runs = []
    heads = list(HEADS)
    for number, family in enumerate(FAMILIES):
        head = heads[(number + turn) % len(heads)]
        if suits(family, head):
            spec, paths = family_spec(family, head, images, tmp_path, **usual)
            runs.append((f"{family} beside {head}", spec, paths))
    random.Random(turn).shuffle(runs)
    assert_same_as_alone(forge, tmp_path / "runs", runs)


def test_all_that_a_recipe_can_ask_for_leaves_nothing_to_the_next_run(
    forge: Forge, tmp_path: Path
) -> None:
    runs: list[Run] = []
    for backbone, head in ((VIT, "drloc"), (CONVNET, "relvit"), (VIT, "supervised")):
        spec = run_spec(backbone, head, virtual_ranks=2, epochs=1, **EVERYTHING)
        runs.append((f"{backbone.model} beside {head}", spec, {}))
    assert_same_as_alone(forge, tmp_path, runs)


def test_runs_on_masks_leave_nothing_to_each_other_nor_to_a_classifier(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scenes = mask_folder(tmp_path / "scenes", train=9, test=3)
    of_masks = on_masks(run_spec(CONVNET, **{**EVERYTHING, **MASKED}), scenes)
    paths = {of_masks.dataset.fingerprint: str(scenes)}
    again = on_masks(run_spec(VIT, **{**EVERYTHING, **MASKED}), scenes)
    runs: list[Run] = [
        ("masks", of_masks, paths),
        ("classes", run_spec(VIT, "drloc", epochs=1, **EVERYTHING), {}),
        ("masks again", again, paths),
    ]
    assert_same_as_alone(forge, tmp_path / "runs", runs, workers=1)


def test_loader_workers_of_a_run_are_gone_before_the_next_one(forge: Forge, tmp_path: Path) -> None:
    images = image_folder(tmp_path / "images", train=40, test=8)
    runs: list[Run] = []
    for seed in (0, 1):
        spec = run_spec(VIT, seed=seed, batch_size=16, pipeline="pil", crop="resized")
        spec = on_folder(spec, images)
        runs.append((f"seed {seed}", spec, {spec.dataset.fingerprint: str(images)}))
    assert_same_as_alone(forge, tmp_path / "runs", runs, workers=2)


@pytest.mark.long
def test_compiled_seeds_of_a_cell_end_as_they_do_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compiled anew by the first one, and taken from its process by the other.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    runs: list[Run] = [
        (f"seed {seed}", run_spec(VIT, "drloc", seed=seed, epochs=1, compile=True), {})
        for seed in range(2)
    ]
    with a_template() as forge:
        assert_same_as_alone(forge, tmp_path / "runs", runs)

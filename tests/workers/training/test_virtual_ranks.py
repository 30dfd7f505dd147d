"""The recipe's virtual ranks decide the numbers; how many real ranks carry them does not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from vtjobs.jobs.run.spec import RunSpec

from ...support.ranks import Ranks
from ...support.training import (
    CONVNET,
    EVERYTHING,
    VIT,
    contents,
    image_folder,
    newest,
    on_folder,
    run_spec,
)

pytestmark = pytest.mark.training

BACKBONES = {"vit": VIT, "convnet": CONVNET, "synced": CONVNET}


def _trained(
    ranks: Ranks, spec: RunSpec, folder: Path, world_size: int
) -> tuple[list[Any], dict[str, Any]]:
    """Return for each step the sums over all ranks and rank 0's running statistics.

    And the last checkpoint.
    """
    place = folder / f"on-{world_size}"
    ended = ranks.train(
        spec, place, world_size=world_size, trace=str(place), checkpoint_every_s=1e9
    )
    assert set(ended.statuses) == {0}, ended.text
    traces = [torch.load(f"{place}-{rank}.pt", weights_only=True) for rank in range(world_size)]
    steps = []
    for step in zip(*traces, strict=True):
        names = set(step[0]["sums"]) - {"grad_norm"}
        sums = {name: sum(trace["sums"].get(name, 0.0) for trace in step) for name in names}
        steps.append((sums, step[0]["sums"]["grad_norm"], step[0]["buffers"]))
    last = newest(place, spec.run_id)
    assert last is not None
    return steps, contents(last)


# Of 899 images: batches of 256 leave 131, shared 33, 33, 33, 32; batches of 128 leave 3, so one
# share is empty.
BATCHES = [(256, False), (256, True), (128, False)]


@pytest.mark.paper("DR-36", "DR-40", "OR-05")
@pytest.mark.parametrize(
    ("backbone", "head", "batch_size", "drop_last"),
    [
        *(("vit", "relvit", *batches) for batches in BATCHES),
        *(("convnet", "drloc", *batches) for batches in BATCHES),
        # A hidden layer normalises over the images: none may be alone.
        ("convnet", "grafit", 256, False),
        # With a share that has no image, and on four ranks with a rank that has none.
        ("synced", "drloc", 128, False),
        ("synced", "grafit", 256, False),
    ],
)
def test_one_two_and_four_ranks_give_the_same_losses_and_running_statistics(
    ranks: Ranks, tmp_path: Path, backbone: str, head: str, batch_size: int, drop_last: bool
) -> None:
    more = {
        "precision": "fp32",
        "epochs": 1,
        "virtual_ranks": 4,
        "batch_size": batch_size,
        "drop_last": drop_last,
        **({"mixup": 0.0, "cutmix": 0.0} if head == "grafit" else {}),
    }
    if backbone == "synced":
        more["sync_bn"] = True
    params = {"views": 2, "dim": 16} if head == "grafit" else None
    spec = run_spec(BACKBONES[backbone], head, params=params, **{**EVERYTHING, **more})
    alone, end = _trained(ranks, spec, tmp_path, 1)
    images = 899 // batch_size * batch_size if drop_last else 899
    assert alone[-1][0]["examples"] == images
    for world_size in (2, 4):
        together, other_end = _trained(ranks, spec, tmp_path, world_size)
        assert len(together) == len(alone)
        for (sums, norm, buffers), (other_sums, other_norm, other_buffers) in zip(
            alone, together, strict=True
        ):
            assert other_sums == pytest.approx(sums, rel=1e-4)
            assert other_norm == pytest.approx(norm, rel=1e-3)
            # Adam makes a whole step of the rounding of a gradient that is nearly zero.
            atol = 1e-4 if head == "grafit" else 1e-5
            torch.testing.assert_close(other_buffers, buffers, rtol=1e-4, atol=atol)
        torch.testing.assert_close(
            other_end["model.safetensors"], end["model.safetensors"], rtol=1e-3, atol=1e-3
        )


def test_a_rank_without_an_image_in_a_whole_epoch_takes_part(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = image_folder(tmp_path / "images", train=3, test=1)
    # Six images in eight shares: the last of four ranks has none, the third one only.
    spec = on_folder(
        run_spec(CONVNET, "relvit", epochs=2, batch_size=8, virtual_ranks=8, clip_grad=5.0), root
    )
    paths = {spec.dataset.fingerprint: str(root)}
    reports = []
    for world_size in (1, 4):
        place = tmp_path / str(world_size)
        ended = ranks.train(spec, place, world_size=world_size, paths=paths)
        assert set(ended.statuses) == {0}, ended.text
        reports.append([event["metrics"] for event in ended.events if event["kind"] == "epoch"])
    for alone, together in zip(*reports, strict=True):
        alone.pop("epoch_seconds"), together.pop("epoch_seconds")
        assert together == pytest.approx(alone, rel=1e-4)


@pytest.mark.paper("PC-05")
def test_running_statistics_follow_virtual_rank_0_alone(ranks: Ranks, tmp_path: Path) -> None:
    spec = run_spec(CONVNET, epochs=1, virtual_ranks=4, clip_grad=5.0)
    steps, _ = _trained(ranks, spec, tmp_path, 1)
    counts = {
        name: int(value)
        for name, value in steps[-1][2].items()
        if name.endswith("num_batches_tracked")
    }
    assert counts and set(counts.values()) == {4}


@pytest.mark.paper("PC-05")
def test_synchronised_shares_are_normalised_as_one_rank_normalises_a_batch(
    ranks: Ranks, tmp_path: Path
) -> None:
    # Nothing is drawn of a share, so that one rank sees the same images as four.
    still: dict[str, Any] = {"epochs": 2, "crop": "none", "flip": 0.0, "clip_grad": 5.0}
    whole, whole_end = _trained(ranks, run_spec(CONVNET, **still), tmp_path / "whole", 1)
    for sync_bn in (True, False):
        spec = run_spec(CONVNET, virtual_ranks=4, sync_bn=sync_bn, **still)
        steps, end = _trained(ranks, spec, tmp_path / str(sync_bn), 2)
        losses, expected = ([step[0]["loss"] for step in taken] for taken in (steps, whole))
        assert (losses == pytest.approx(expected, rel=1e-4)) == sync_bn
        if sync_bn:
            torch.testing.assert_close(steps[-1][2], whole[-1][2], rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(
                end["model.safetensors"], whole_end["model.safetensors"], rtol=1e-3, atol=1e-3
            )


def test_a_metric_of_the_labs_own_sees_the_whole_set_on_any_number_of_ranks(
    ranks: Ranks, tmp_path: Path
) -> None:
    source = (Path(__file__).parents[3] / "docs" / "examples" / "balanced.py").read_text()
    metric = {"name": "balanced_accuracy", "args": {}, "source": source}
    spec = run_spec(VIT, epochs=1, virtual_ranks=2, ema_decay=0.5)
    scores = []
    for world_size in (1, 2):
        place = tmp_path / f"on-{world_size}"
        ended = ranks.train(spec, place, world_size=world_size, metrics=[metric])
        assert set(ended.statuses) == {0}, ended.text
        (metrics,) = (event["metrics"] for event in ended.events if event["kind"] == "evaluation")
        scores.append([metrics["balanced_accuracy"], metrics["ema_balanced_accuracy"]])
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert all(0 < score < 100 for score in scores[0])

"""When a run's images are decoded."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from vtjobs.workers.data.ahead import Ahead
from vtjobs.workers.errors import DataError
from vtjobs.workers.training.loop import Training

from ...support.pictures import LIMIT, keep_small
from ...support.ranks import STOPPED, Ranks
from ...support.training import (
    CONVNET,
    image_folder,
    make_backbone,
    newest,
    on_folder,
    run_spec,
    training,
)


@pytest.fixture(autouse=True)
def _keeps_small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_small(monkeypatch)


def begun(folder: Path, images: Path, events: list[dict[str, Any]], **plan: Any) -> Training:
    spec = on_folder(run_spec(CONVNET, pipeline="pil", crop="resized", batch_size=8), images)
    return training(
        spec,
        folder,
        paths={spec.dataset.fingerprint: str(images)},
        report=lambda kind, **more: events.append({"kind": kind, **more}),
        **plan,
    )


def scores(events: list[dict[str, Any]]) -> list[dict[str, float]]:
    return [event["metrics"] for event in events if event["kind"] == "evaluation"]


def test_a_run_is_set_up_without_a_look_at_its_test_set(tmp_path: Path) -> None:
    images, kept = image_folder(tmp_path / "images", train=8, test=10), tmp_path / "kept"
    found = []
    for name, plan in (("alone", {}), ("kept", {"decoded": kept, "decoded_bytes": LIMIT})):
        events: list[dict[str, Any]] = []
        run = begun(tmp_path / name, images, events, **plan)
        assert not list(kept.glob("*/*.u8"))
        assert run.run()
        found.append(scores(events))
    assert list(kept.glob("*/*.u8"))
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_a_run_can_be_stopped_while_its_test_set_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, kept = image_folder(tmp_path / "images", train=8, test=10), tmp_path / "kept"
    plan: dict[str, Any] = {"decoded": kept, "decoded_bytes": LIMIT}
    whole: list[dict[str, Any]] = []
    assert begun(tmp_path / "whole", images, whole).run()
    # Nothing is decoded beside the training, so a file appears when it is needed.
    monkeypatch.setattr(Ahead, "_start", lambda _: None)
    first: list[dict[str, Any]] = []
    stopped = begun(
        tmp_path / "first", images, first, wants_stop=lambda: any(kept.glob("*/*.u8")), **plan
    )
    assert not stopped.run()
    assert not [event for event in first if event["kind"] == "evaluation"]
    assert len(list(kept.glob("*/*.u8"))) == 1
    saved = newest(tmp_path / "first", stopped.spec.run_id)
    second: list[dict[str, Any]] = []
    assert begun(tmp_path / "second", images, second, resume=saved, **plan).run()
    assert scores(second) == scores(whole)


def test_ranks_decode_a_set_together_and_agree_when_to_stop(ranks: Ranks, tmp_path: Path) -> None:
    # More than 64 MiB at 224 pixels: such a set is kept.
    images, kept = image_folder(tmp_path / "images", train=8, test=230), tmp_path / "kept"
    recipe = {"pipeline": "pil", "crop": "resized", "batch_size": 8, "virtual_ranks": 2}
    shape = {"patch_size": 32, "embed_dim": 16, "depth": 1, "num_heads": 2}
    small = make_backbone("vit_small_patch16_224", **shape)
    spec = on_folder(run_spec(small, epochs=1, image_size=224, **recipe), images)
    paths = {spec.dataset.fingerprint: str(images)}
    whole = ranks.train(spec, tmp_path / "whole", world_size=2, paths=paths)
    together = ranks.train(
        spec, tmp_path / "together", world_size=2, paths=paths, decoded=str(kept)
    )
    assert len(list(kept.glob("*/*.u8"))) == 1
    assert scores(together.events) == scores(whole.events)
    shutil.rmtree(kept)
    # After two steps, while the set is decoded or right afterwards.
    stopped = ranks.train(
        spec, tmp_path / "stopped", world_size=2, paths=paths, decoded=str(kept), stop_at=3
    )
    assert stopped.statuses == [STOPPED, STOPPED] and not scores(stopped.events)
    saved = newest(tmp_path / "stopped", spec.run_id)
    resumed = ranks.train(
        spec, tmp_path / "resumed", world_size=2, paths=paths, decoded=str(kept), resume=saved
    )
    assert scores(resumed.events) == scores(whole.events)


def test_a_damaged_test_image_fails_the_run_in_its_first_epoch(tmp_path: Path) -> None:
    images = image_folder(tmp_path / "images", train=8, test=10)
    (images / "test" / "class-1" / "3.png").write_bytes(b"no picture")
    events: list[dict[str, Any]] = []
    run = begun(tmp_path / "run", images, events, decoded=tmp_path / "kept", decoded_bytes=LIMIT)
    with pytest.raises(DataError, match=r"3\.png cannot be read"):
        run.run()
    assert not [event for event in events if event["kind"] == "epoch"]

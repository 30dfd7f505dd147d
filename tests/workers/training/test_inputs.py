"""When a run's images are decoded."""

from pathlib import Path
from typing import Any

import pytest

from vtjobs.workers.errors import DataError
from vtjobs.workers.training.loop import Training

from ...support.pictures import LIMIT, keep_small
from ...support.training import CONVNET, image_folder, on_folder, run_spec, training


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


def test_a_run_is_set_up_without_a_look_at_its_test_set(tmp_path: Path) -> None:
    images, kept = image_folder(tmp_path / "images", train=8, test=10), tmp_path / "kept"
    scores = []
    for name, plan in (("alone", {}), ("kept", {"decoded": kept, "decoded_bytes": LIMIT})):
        events: list[dict[str, Any]] = []
        run = begun(tmp_path / name, images, events, **plan)
        assert not list(kept.glob("*/*.u8"))
        assert run.run()
        scores.append([event["metrics"] for event in events if event["kind"] == "evaluation"])
    assert list(kept.glob("*/*.u8"))
    assert scores[0] == scores[1]
    assert len(scores[0]) == 2


def test_a_damaged_test_image_fails_the_run_in_its_first_epoch(tmp_path: Path) -> None:
    images = image_folder(tmp_path / "images", train=8, test=10)
    (images / "test" / "class-1" / "3.png").write_bytes(b"no picture")
    events: list[dict[str, Any]] = []
    run = begun(tmp_path / "run", images, events, decoded=tmp_path / "kept", decoded_bytes=LIMIT)
    with pytest.raises(DataError, match=r"3\.png cannot be read"):
        run.run()
    assert not [event for event in events if event["kind"] == "epoch"]

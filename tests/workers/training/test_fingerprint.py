"""What the streams of a run decided.

A stream that is changed changes its own fingerprint and no other.
"""

from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.run.settings import BackboneSettings
from vtjobs.jobs.run.spec import STREAMS, RunSpec, seeds_of
from vtjobs.jobs.values import changed
from vtjobs.workers.training import fingerprint, loop

from ...support.training import CONVNET, EVERYTHING, VIT, run_spec, training

pytestmark = pytest.mark.training


def prints(spec: RunSpec, folder: Path, **seeds: int) -> dict[str, str | None]:
    found: dict[str, Any] = {}

    def report(kind: str, **event: Any) -> None:
        if kind == "fingerprints":
            found.update(event["streams"])

    training(changed(spec, seeds=seeds_of(0) | seeds), folder, report=report)
    assert tuple(sorted(found)) == tuple(sorted(STREAMS))
    return found


def held_out(spec: RunSpec) -> RunSpec:
    return changed(spec, dataset=changed(spec.dataset, val=0.1))


@pytest.mark.paper("DR-02", "VA-01")
@pytest.mark.parametrize("pipeline", ["tensor", "pil"])
@pytest.mark.parametrize("backbone", [VIT, CONVNET])
@pytest.mark.parametrize("stream", STREAMS)
def test_another_value_of_a_stream_changes_its_fingerprint_alone(
    tmp_path: Path, stream: str, backbone: BackboneSettings, pipeline: str
) -> None:
    changes: dict[str, Any] = EVERYTHING | {"pipeline": pipeline, "precision": "fp32"}
    spec = held_out(run_spec(backbone, "drloc", **changes))
    one, other = prints(spec, tmp_path), prints(spec, tmp_path, **{stream: 1})
    assert None not in one.values()
    assert [name for name in STREAMS if one[name] != other[name]] == [stream]
    assert prints(spec, tmp_path) == one


def test_augmentation_has_a_fingerprint_where_workers_crop_and_the_device_does_the_rest(
    tmp_path: Path,
) -> None:
    cropped = run_spec(pipeline="hybrid", crop="resized")
    mirrored = run_spec(pipeline="hybrid", crop="none", flip=0.5)
    for spec in (cropped, mirrored):
        one, other = prints(spec, tmp_path), prints(spec, tmp_path, augment=1)
        assert one["augment"] and other["augment"] and one["augment"] != other["augment"]
    still = prints(run_spec(pipeline="hybrid", crop="none"), tmp_path)
    assert still["augment"] is None


def test_a_stream_that_decides_nothing_has_no_fingerprint(tmp_path: Path) -> None:
    found = prints(run_spec(), tmp_path)
    assert [name for name in STREAMS if found[name] is None] == ["split", "mix", "drop", "pair"]
    still = prints(run_spec(crop="none"), tmp_path)
    assert still["augment"] is None


def test_relvit_draws_its_patches_from_the_stream_of_augmentation(tmp_path: Path) -> None:
    spec = run_spec(head="relvit")
    one, other = prints(spec, tmp_path), prints(spec, tmp_path, augment=1)
    assert one["augment"] != other["augment"] and {**one, "augment": ""} == {**other, "augment": ""}


@pytest.mark.paper("VA-01")
@pytest.mark.parametrize("backbone", [VIT, CONVNET])
def test_taking_fingerprints_changes_nothing_in_the_run(
    tmp_path: Path, backbone: BackboneSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = run_spec(backbone, "drloc", **{**EVERYTHING, "epochs": 1})
    runs = [training(spec, tmp_path / "with")]
    monkeypatch.setattr(loop, "fingerprints", lambda *_: {})
    runs.append(training(spec, tmp_path / "without"))
    weights = []
    for run in runs:
        assert run.run()
        weights.append(
            {name: value.numpy().tobytes() for name, value in run.trainee.state_dict().items()}
        )
    assert weights[0] == weights[1]


def test_a_head_that_cannot_take_the_probe_trains_without_two_fingerprints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = run_spec(CONVNET, "drloc", epochs=1)
    run = training(spec, tmp_path)
    before = {name: value.clone() for name, value in run.trainee.named_buffers()}

    def refuse(*_: Any) -> None:
        for value in run.trainee.buffers():
            value += 1
        raise ValueError("not with zeros")

    monkeypatch.setattr(run.trainee, "forward", refuse)
    found = fingerprint.fingerprints(run, run.inputs.part("train"))
    assert (found["drop"], found["pair"]) == (None, None) and found["init"] is not None
    assert all(before[name].equal(value) for name, value in run.trainee.named_buffers())

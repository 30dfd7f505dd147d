"""What finished runs no longer need."""

import os
from pathlib import Path

from vtjobs.orchestrator.housekeeping import gc

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab

FILES = (
    "model.safetensors",
    "ema.safetensors",
    "correct.safetensors",
    "chosen.safetensors",
    "train.pt",
    "manifest.json",
)


def checkpoint(lab: Lab, run_id: str, attempt: int, step: int | str, *, bytes: int = 1000) -> Path:
    place = lab.run(run_id).checkpoints(attempt) / (
        f"step-{step:09d}" if isinstance(step, int) else step
    )
    place.mkdir(parents=True)
    for name in FILES:
        (place / name).write_bytes(bytes * b"x")
    return place


def two_attempts(lab: Lab) -> str:
    """Make a completed run of two attempts, with checkpoints and one that was never published."""
    (run_id,) = lab.submit(tiny_grid(seeds="1"))
    lab.tick()
    journal(lab, run_id, 1, started(), ended("preempted", "stopped"))
    lab.tick()
    journal(
        lab,
        run_id,
        2,
        started(attempt=2, resumed_attempt=1, resumed_step=4),
        scored(90.0),
        ended("completed"),
    )
    lab.tick()
    for attempt, step in ((1, 4), (2, 8), (2, 16), (2, ".stage-20-abcd")):
        checkpoint(lab, run_id, attempt, step)
    assert lab.state(run_id) == "completed"
    return run_id


def test_a_completed_run_keeps_its_final_weights_alone(quiet_lab: Lab) -> None:
    run_id = two_attempts(quiet_lab)
    garbage = gc.find(quiet_lab.context, [run_id])
    assert sum(item.bytes for item in garbage) == gc.remove(garbage) == 3 * 1000 * len(FILES) + 1000
    left = {path.relative_to(quiet_lab.run(run_id).path / "attempts") for path in quiet_lab.run(run_id).path.rglob("*")
            if path.is_file() and "checkpoints" in path.parts}  # fmt: skip
    assert {str(path) for path in left} == {
        f"0002/checkpoints/step-000000016/{name}" for name in FILES if name != "train.pt"
    }
    assert gc.find(quiet_lab.context, [run_id]) == []


def test_finding_removes_nothing(quiet_lab: Lab) -> None:
    run_id = two_attempts(quiet_lab)
    before = sorted(quiet_lab.run(run_id).path.rglob("*"))
    assert gc.find(quiet_lab.context, [run_id])
    assert sorted(quiet_lab.run(run_id).path.rglob("*")) == before


def test_a_run_that_may_still_go_on_keeps_every_checkpoint(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2", extra="retries: 1"))
    quiet_lab.tick()
    journal(quiet_lab, runs[0], 1, started(), ended("failed", "crash", signature="x"))
    journal(quiet_lab, runs[1], 1, started())
    for run_id in runs:
        checkpoint(quiet_lab, run_id, 1, 4)
    quiet_lab.tick()
    assert quiet_lab.states() == {runs[0]: "failed", runs[1]: "running"}
    assert gc.find(quiet_lab.context, runs) == []


def test_decoded_images_that_no_run_uses_may_go(quiet_lab: Lab) -> None:
    folder = quiet_lab.context.workspace.decoded / "set"
    folder.mkdir(parents=True)
    (folder / "00000.u8").write_bytes(bytes(1000))
    assert gc.find_decoded(quiet_lab.context) == []
    os.utime(folder, (0, 0))
    garbage = gc.find_decoded(quiet_lab.context)
    assert [(item.run_id, item.bytes) for item in garbage] == [("", 1000)]
    assert gc.remove(garbage) == 1000 and not folder.exists()

"""What rank 0 writes into its log for people."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vtjobs.jobs.run.spec import seeds_of
from vtjobs.jobs.workspace.lineage import Candidate
from vtjobs.workers.training.run_log import EpochFacts, RunLog

from ...support.training import contents, differences, newest, run_spec, training

SPEC = run_spec(epochs=3, virtual_ranks=2)
ON_CPU = re.compile(
    r"epoch \d+/3  loss \d+\.\d{4}  lr \S+  test top1 \d+\.\d{2} loss \d+\.\d{4} top5 \d+\.\d{2}"
    r"  \d+ img/s  eta \d+s"
)


def facts(epoch: int, top1: float | None = None, **changes: Any) -> EpochFacts:
    """Return an epoch of thirty that took a usual course."""
    usual: dict[str, Any] = {
        "metrics": {"train_loss": 1.234, "lr": 0.0005, "epoch_seconds": 3.0},
        "scores": {} if top1 is None else {"test": {"top1": top1, "n": 897.0}},
        "images_per_s": 1234.4,
        "memory_bytes": None,
        "left_s": 130.0,
    }
    return EpochFacts(epoch=epoch, epochs=30, **(usual | changes))


def written(*epochs: EpochFacts) -> list[str]:
    lines: list[str] = []
    log = RunLog(lines.append)
    for epoch in epochs:
        log.epoch(epoch)
    return lines


def test_an_epoch_is_one_line_of_loss_rate_scores_speed_memory_and_time_left() -> None:
    assert written(facts(3, 45.67, memory_bytes=int(3.2 * 2**30))) == [
        "epoch 3/30  loss 1.2340  lr 0.0005  test top1 45.67  1234 img/s  mem 3.2 GiB  eta 2m10s"
    ]


def test_an_epoch_that_was_not_evaluated_has_no_scores() -> None:
    assert written(facts(3)) == ["epoch 3/30  loss 1.2340  lr 0.0005  1234 img/s  eta 2m10s"]


def test_every_set_is_named_with_all_its_scores() -> None:
    scores = {
        "val": {"top1": 40.0, "ema_top1": 41.0},
        "test": {"loss": 0.5, "n": 9.0, "ema_n": 9.0},
    }
    (line,) = written(facts(3, scores=scores))
    assert "  val top1 40.00 ema_top1 41.00  test loss 0.5000  " in line


def test_the_name_of_a_metric_cannot_break_the_line() -> None:
    (line,) = written(facts(3, scores={"test": {"loss": 1.0, "my\nown": 1.0}}))
    assert "\n" not in line


def test_what_is_not_known_is_a_dash() -> None:
    (line,) = written(facts(3, images_per_s=None, left_s=None))
    assert line.endswith("  - img/s  eta -")


def test_the_last_line_says_how_it_ended_with_the_best_and_the_last_score() -> None:
    lines: list[str] = []
    log = RunLog(lines.append)
    for epoch, top1 in enumerate((50.0, 70.0, 60.0), start=1):
        log.epoch(facts(epoch, top1))
    log.end("completed")
    assert lines[-1] == (
        "end  completed  best test top1 70.00 at epoch 2  last test top1 60.00 at epoch 3"
    )


def test_without_labels_the_best_score_is_the_lowest_loss() -> None:
    lines: list[str] = []
    log = RunLog(lines.append)
    for epoch, loss in enumerate((0.5, 0.3, 0.4), start=1):
        log.epoch(facts(epoch, scores={"test": {"loss": loss, "direction": 20.0}}))
    log.end("completed")
    assert "best test loss 0.3000 at epoch 2  last test loss 0.4000 at epoch 3" in lines[-1]


def test_the_first_line_says_what_is_trained_and_where_it_goes_on() -> None:
    lines: list[str] = []
    resumed = Candidate(attempt=1, step=120)
    RunLog(lines.append).start(SPEC, world_size=2, attempt=3, resumed=resumed)
    assert lines == [
        "start  backbone vit_small_patch16_224  dataset digits  head supervised  seed 0"
        "  world size 2  epochs 3  attempt 3  resumed from step 120 of attempt 1"
    ]


def test_streams_that_vary_apart_are_named_in_the_first_line() -> None:
    lines: list[str] = []
    spec = run_spec()
    apart = type(spec).parse(spec.canonical().replace('"order":0', '"order":4'))
    assert apart.seeds == seeds_of(0) | {"order": 4}
    RunLog(lines.append).start(apart, world_size=1, attempt=1, resumed=None)
    assert "  seed order 4  " in lines[0]
    assert lines[0].endswith("  attempt 1  from the beginning")


def test_training_writes_a_line_for_each_epoch(tmp_path: Path) -> None:
    lines: list[str] = []
    training(SPEC, tmp_path, log=RunLog(lines.append)).run()
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]
    assert all(ON_CPU.fullmatch(line) for line in lines), lines
    assert lines[-1].endswith("eta 0s")


def stop_at(step: int) -> Callable[[], bool]:
    moments = iter(range(1, 1000))
    return lambda: next(moments) >= step


def test_a_resumed_run_goes_on_counting_and_ends_with_the_bits_of_one_that_logs_nothing(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    log = RunLog(lines.append)
    first = training(SPEC, tmp_path / "run", log=log, wants_stop=stop_at(7))
    assert not first.run()
    saved = newest(tmp_path / "run", SPEC.run_id)
    assert training(SPEC, tmp_path / "on", log=log, resume=saved).run()
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]
    assert training(SPEC, tmp_path / "silent").run()
    ends = [newest(tmp_path / name, SPEC.run_id) for name in ("on", "silent")]
    one, other = (contents(end) for end in ends if end is not None)
    assert differences(one, other) == []

"""How fast an attempt trains, what keeps it waiting, and that measuring changes nothing."""

import itertools
import random
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
import torch

from vtjobs.jobs.documents import from_plain
from vtjobs.jobs.workspace.events import Usage
from vtjobs.workers.training import loop
from vtjobs.workers.training.pace import WARM_UP_STEPS, Pace

from ...support.training import CPU, EVERYTHING, contents, differences, newest, run_spec, training

SPEC = run_spec(**{**EVERYTHING, "precision": "fp32"}, epochs=2, virtual_ranks=2)


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def two_epochs(clock: Clock) -> Pace:
    """Train 100 images in 4 s, one of which was waited for, and evaluate for a second; twice."""
    pace = Pace(CPU, clock)

    def give() -> None:
        clock.now += 1.0

    for _ in range(2):
        pace.begin_epoch()
        pace.waiting(give)
        pace.step(64)
        pace.step(36)
        clock.now += 3.0
        pace.end_steps()
        clock.now += 1.0
    return pace


def test_the_time_left_follows_from_all_epochs_of_this_attempt_with_their_evaluations() -> None:
    pace = two_epochs(Clock())
    assert pace.images_per_s == pytest.approx(25.0)
    assert pace.left_s(6) == pytest.approx(6 * 10 / 4)


def test_an_attempt_that_only_evaluates_knows_no_speed() -> None:
    pace = Pace(CPU, Clock())
    pace.begin_epoch()
    pace.end_steps()
    assert (pace.images_per_s, pace.left_s(8)) == (None, None)
    assert from_plain(pace.usage, Usage) == Usage()


def test_usage_is_over_the_training_of_all_epochs_without_their_evaluations() -> None:
    usage = from_plain(two_epochs(Clock()).usage, Usage)
    assert usage == Usage(images_per_s=25.0, data_wait=0.25)


def test_usage_in_the_middle_of_an_epoch_counts_its_steps_until_the_last_one() -> None:
    clock = Clock()
    pace = two_epochs(clock)
    pace.begin_epoch()
    clock.now += 2.0
    pace.step(50)
    # A checkpoint is being saved.
    clock.now += 90.0
    assert from_plain(pace.usage, Usage) == Usage(images_per_s=25.0, data_wait=0.2)


@pytest.mark.paper("DR-61", "DR-78", "VA-19")
def test_a_step_has_its_mean_and_deviation_once_the_first_ones_are_over() -> None:
    clock = Clock()
    pace = Pace(CPU, clock)
    timed = [1.0, 2.0, 3.0, 6.0] * 3
    for seconds in ([50.0] * WARM_UP_STEPS + timed[:5], timed[5:]):
        pace.begin_epoch()
        for taken in seconds:
            clock.now += taken
            pace.step(64)
        pace.end_steps()
        # An evaluation.
        clock.now += 90.0
    usage = from_plain(pace.usage, Usage)
    assert (usage.step_s, usage.step_std_s) == (3.0, pytest.approx(stdev(timed), abs=1e-6))


def test_what_the_device_has_queued_belongs_to_the_steps() -> None:
    clock = Clock()
    pace = Pace(CPU, clock)
    pace.begin_epoch()
    for _ in range(WARM_UP_STEPS + 10):
        clock.now += 1.0
        pace.step(64)
    # The loss is looked at, which waits; then an evaluation, and the checkpoint behind it.
    clock.now += 5.0
    pace.end_steps()
    clock.now += 90.0
    pace.settle()
    pace.saved()
    assert from_plain(pace.usage, Usage).step_s == 1.5


def test_a_few_steps_have_no_mean() -> None:
    pace = Pace(CPU, Clock())
    pace.begin_epoch()
    for _ in range(WARM_UP_STEPS + 9):
        pace.step(64)
    assert from_plain(pace.usage, Usage).step_s is None


def test_a_checkpoint_between_two_steps_is_part_of_neither() -> None:
    clock = Clock()
    pace = Pace(CPU, clock)
    pace.begin_epoch()
    for _ in range(WARM_UP_STEPS + 10):
        pace.settle()
        clock.now += 90.0
        pace.saved()
        clock.now += 2.0
        pace.step(64)
    assert from_plain(pace.usage, Usage).step_s == 2.0


def test_what_a_source_gives_is_handed_on_as_it_is() -> None:
    assert Pace(CPU).waiting(lambda one, two: (two, one), 1, two=2) == (2, 1)


def test_a_source_that_fails_fails_as_it_would_by_itself() -> None:
    def broken() -> None:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        Pace(CPU).waiting(broken)


def test_a_cpu_has_no_peak_of_gpu_memory() -> None:
    assert Pace(CPU).peak_memory_bytes is None


def test_each_epoch_and_each_checkpoint_says_what_training_used(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    training(SPEC, tmp_path, report=lambda kind, **fields: told.append((kind, fields))).run()
    usages = [fields["usage"] for kind, fields in told if kind in ("epoch", "checkpoint")]
    assert len(usages) == 3
    for usage in usages:
        found = from_plain(usage, Usage)
        assert found.images_per_s is not None and found.images_per_s > 0
        assert found.data_wait is not None and 0 < found.data_wait < 1


def test_the_weights_are_bit_for_bit_the_same_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unmeasured(Pace):
        """Neither asks a clock nor counts."""

        def waiting(self, give: Any, *args: Any, **kwargs: Any) -> Any:
            return give(*args, **kwargs)

        @property
        def usage(self) -> dict[str, Any]:
            return {}

    draw = random.Random(0)
    wild = (draw.uniform(-1e6, 1e6) for _ in itertools.count())
    told: dict[str, list[Any]] = {}
    found = []
    for name, pace in (
        ("usual", Pace),
        ("wild", lambda device: Pace(device, lambda: next(wild))),
        ("none", Unmeasured),
    ):
        monkeypatch.setattr(loop, "Pace", pace)
        scores = told.setdefault(name, [])

        def report(kind: str, scores: list[Any] = scores, **fields: Any) -> None:
            if kind == "evaluation":
                scores.append(fields["metrics"])

        torch.manual_seed(0)
        training(SPEC, tmp_path / name, report=report).run()
        last = newest(tmp_path / name, SPEC.run_id)
        assert last is not None
        found.append((contents(last), torch.random.get_rng_state()))
    assert differences(found[0], found[1]) == differences(found[0], found[2]) == []
    assert told["usual"] == told["wild"] == told["none"] != []

"""What it costs to record what an attempt uses.

    python benchmarks/recording.py [--steps 12000] [--virtual-ranks 2]

A small model in this process, whose steps take milliseconds, so that what a step costs beside its
arithmetic shows as much as it ever will. Each step is recorded, or not, or not in a third group, by
a draw; the third group says how much two equal ones differ. Ratios are of the lower quartiles of
CPU time: other users of the machine only ever add to a step, and recording waits for nothing. Then
the parts by themselves: what is counted at a step and told at an epoch, and an agent's look at the
processes of its node, which comes every half minute.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.training import CPU, run_spec, training
from vtjobs.workers.agent.meter import MOST_S, Meter
from vtjobs.workers.training.loop import Training
from vtjobs.workers.training.pace import Pace

TARGET = 1.005
ARMS = ("recorded", "plain", "plain again")


class Unmeasured(Pace):
    """Neither asks a clock nor counts."""

    def waiting(self, give: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return give(*args, **kwargs)

    def step(self, images: int) -> None:
        return


def main() -> int:
    """Measure, print, and say by the exit status whether the target is met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--virtual-ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vtjobs-recording-") as folder:
        shares = {"batch_size": 128, "virtual_ranks": options.virtual_ranks, "drop_last": True}
        trained = training(run_spec(epochs=100_000, **shares), Path(folder))
        taken = measure(trained, options.steps)
    step_s = quartile(taken["plain"])
    print(f"{options.steps} steps of {1e3 * step_s:.1f} ms")
    print(f"{'CPU time of a step':<32} {'ratio':>8} {'± 95 %':>8}")
    found = show("recorded / not recorded", taken["recorded"], taken["plain"])
    show("not recorded / not recorded", taken["plain again"], taken["plain"])
    parts = (
        ("counting at a step", counting_s(options.virtual_ranks), step_s, "a step"),
        ("telling at an epoch", telling_s(), trained.order.steps * step_s, "this short epoch"),
        (f"a look at {processes()} processes", looking_s(), MOST_S, "one core"),
    )
    for name, seconds, whole, of in parts:
        print(f"{name:<32} {1e6 * seconds:>8.2f} µs, {100 * seconds / whole:.4f} % of {of}")
    print(f"target < {TARGET}")
    return 0 if found < TARGET else 1


def measure(trained: Training, steps: int) -> dict[str, list[float]]:
    """Return arm -> CPU seconds of its steps."""
    paces: dict[str, Pace] = {arm: Unmeasured(CPU) for arm in ARMS} | {"recorded": Pace(CPU)}
    taken: dict[str, list[float]] = {arm: [] for arm in ARMS}
    draw = random.Random(0)
    one_step = trained._one_step
    warm_up = True

    def timed() -> None:
        arm = draw.choice(ARMS)
        trained.pace = paces[arm]
        began = time.process_time()
        one_step()
        if not warm_up:
            taken[arm].append(time.process_time() - began)

    trained._one_step = timed
    while sum(map(len, taken.values())) < steps:
        trained._train_epoch()
        trained.epoch, trained.step, trained.sums = trained.epoch + 1, 0, {}
        warm_up = trained.epoch < 5
    return taken


def quartile(seconds: Any, axis: int = -1) -> Any:
    return numpy.quantile(seconds, 0.25, axis=axis)


def show(name: str, ours: list[float], theirs: list[float]) -> float:
    """Print the ratio of lower quartiles with half of its 95 % interval (bootstrap); return it."""
    ratio = float(quartile(ours) / quartile(theirs))
    draw = numpy.random.default_rng(0)
    many = [quartile(draw.choice(one, (500, len(one)))) for one in (ours, theirs)]
    low, high = numpy.quantile(many[0] / many[1], (0.025, 0.975))
    print(f"{name:<32} {ratio:>8.4f} {(high - low) / 2:>8.4f}")
    return ratio


def counting_s(shares: int, *, repeats: int = 20_000) -> float:
    """Return the seconds that counting a step takes, beside calling what it counts."""
    seconds = {}
    for pace in (Pace(CPU), Unmeasured(CPU)):
        pace.begin_epoch()
        began = time.process_time()
        for _ in range(repeats):
            for _ in range(shares):
                pace.waiting(int)
            pace.step(1)
        seconds[type(pace)] = time.process_time() - began
    return (seconds[Pace] - seconds[Unmeasured]) / repeats


def telling_s(*, repeats: int = 2_000) -> float:
    """Return the seconds that it takes to put what was counted into an epoch's event."""
    pace = Pace(CPU)
    pace.begin_epoch()
    pace.step(1)
    began = time.process_time()
    for _ in range(repeats):
        json.dumps(pace.usage)
    return (time.process_time() - began) / repeats


def processes() -> int:
    """Return how many processes there are on this machine."""
    return len(list(Path("/proc").glob("[0-9]*")))


def looking_s(*, repeats: int = 20) -> float:
    """Return the CPU seconds of an agent's look at all of them."""
    now = [0.0]
    meter = Meter(clock=lambda: now[0])
    taken = []
    for number in range(1, repeats + 1):
        now[0] = 2 * MOST_S * number
        began = time.process_time()
        meter.look([1])
        taken.append(time.process_time() - began)
    return float(numpy.median(taken))


if __name__ == "__main__":
    sys.exit(main())

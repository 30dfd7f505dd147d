"""What commands cost a user who waits for them: CPU seconds and peak memory, start included.

    python benchmarks/commands.py [--rounds 3]

Every command runs in a process of its own, in turn with a reference that starts Python and imports
SQLAlchemy. The ratio to it, measured in the same round, says more on a shared machine than the
seconds do. Nothing is trained: grids are held, and results are imported.
"""

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

VTJOBS = [sys.executable, "-m", "vtjobs.cli"]
REFERENCE = [sys.executable, "-c", "import sqlalchemy, sqlalchemy.dialects.sqlite"]
GRID = """\
name: {name}
backbones: [vit_mini, swin_mini]
datasets: [digits]
heads: [supervised, relvit]
seeds: {seeds}
axes: {{train.lr: [{rates}]}}
recipe: quickstart
resources: {{gpus_per_node: 0}}
"""
HEADS = ("supervised", "drloc", "relvit", "jigsaw", "rotation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command, and what it is to take on two quiet cores."""

    name: str
    words: tuple[str, ...]
    target_s: float
    target_mib: float | None = None


CASES = (
    Case(name="--help", words=("--help",), target_s=0.15),
    Case(name="status of 2,000 runs", words=("status", "-W", "held"), target_s=0.3),
    Case(name="runs of a grid of 2,000", words=("runs", "held", "-W", "held"), target_s=1.0),
    Case(name="submit of one run", words=("submit", "one.yaml", "--hold"), target_s=1.0),
    Case(name="cancel of 2,000 runs", words=("cancel", "held", "-y", "-W", "held"), target_s=2.0),
    Case(name="report of 1,000 cells", words=("report", "k", "-W", "results"), target_s=1.0),
    Case(name="compare 800 heads", words=("compare", "k", "-W", "results"), target_s=2.0),
    Case(
        name="plan of 100,000 runs",
        words=("plan", "large.yaml", "-W", "absent"),
        target_s=4.0,
        target_mib=250.0,
    ),
)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {case.name: [] for case in CASES}
    ratios: dict[str, list[float]] = {case.name: [] for case in CASES}
    memory: dict[str, float] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="vtjobs-commands-") as name:
            folder = Path(name)
            prepare(folder)
            for case in CASES:
                reference, _ = measure(REFERENCE, folder)
                took, peak = measure([*VTJOBS, *case.words], folder)
                seconds[case.name].append(took)
                ratios[case.name].append(took / reference)
                memory[case.name] = peak
    print(f"{'command':<26} {'CPU s':>7} {'target':>7} {'x reference':>12} {'peak MiB':>9}")
    for case in CASES:
        took, ratio = statistics.median(seconds[case.name]), statistics.median(ratios[case.name])
        at_most = f"  target {case.target_mib:.0f} MiB" if case.target_mib else ""
        print(
            f"{case.name:<26} {took:>7.2f} {case.target_s:>7.2f} {ratio:>12.1f}"
            f" {memory[case.name]:>9.0f}{at_most}"
        )
    return 0


def prepare(folder: Path) -> None:
    """Make a workspace with 2,000 runs on hold, one with 1,000 cells of results, and grid files."""
    held = GRID.format(name="held", seeds=50, rates=", ".join(f"{n}.0e-4" for n in range(1, 11)))
    (folder / "held.yaml").write_text(held)
    (folder / "one.yaml").write_text(GRID.format(name="one", seeds=1, rates="1.0e-3"))
    rates = ", ".join(f"{n}.0e-6" for n in range(1, 5001))
    (folder / "large.yaml").write_text(GRID.format(name="large", seeds=5, rates=rates))
    draw = random.Random(0)
    lines = ["backbone,dataset,head,seed,top1"]
    for backbone in range(20):
        for dataset in range(10):
            for head in HEADS:
                lines += [
                    f"b{backbone},d{dataset},{head},{seed},{draw.gauss(70, 1)}" for seed in range(5)
                ]
    (folder / "k.csv").write_text("\n".join(lines))
    for words in (
        ("submit", "held.yaml", "--hold", "-W", "held"),
        ("import", "k.csv", "-W", "results"),
    ):
        subprocess.run([*VTJOBS, *words], cwd=folder, check=True, capture_output=True)


def measure(command: list[str], folder: Path) -> tuple[float, float]:
    """Return the CPU seconds of a command and its children, and its peak memory in MiB."""
    # A process of its own, whose children are this command alone.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pid = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).pid
    _, status, usage = os.wait4(pid, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert status == 0, f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}"
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, usage.ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())

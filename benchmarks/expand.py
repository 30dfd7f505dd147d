"""How long 100,000 runs take to be expanded, hashed and checked against a ledger that has half of
them.

    python benchmarks/expand.py

Half of the runs are stored first, by a process of its own, so that its memory does not count.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vtjobs.jobs.config.config import Config, load_config
from vtjobs.orchestrator.loop.context import open_context
from vtjobs.orchestrator.requests.submit import Prepared, prepare, submit
from vtjobs.orchestrator.requests.summary import summary

RUNS = 100_000
TARGET_S, TARGET_MIB = 10.0, 1024.0

# 2 x 5 x 2 x 1,000 cells with 5 seeds each: many cells with few seeds are the hard case.
GRID = """\
name: large
backbones: [vit_mini, swin_mini]
datasets: [digits, cifar10, cifar100, svhn, flowers102]
heads: [supervised, relvit]
seeds: 5
recipe: quickstart
axes:
  train.lr: [{lr}]
  train.weight_decay: [{decay}]
  train.mixup: [{mixup}]
resources: {{gpus_per_node: 0}}
"""


def write_grid(path: Path, *, half: bool) -> str:
    """Write the grid, or half of it; return its path."""
    lr = ", ".join(f"{n}e-4" for n in range(1, 6 if half else 11))
    decay, mixup = (", ".join(f"0.{n}" for n in range(10)) for _ in range(2))
    path.write_text(GRID.format(lr=lr, decay=decay, mixup=mixup))
    return str(path)


def prepared(config: Config, folder: Path, *, half: bool) -> Prepared:
    source = write_grid(folder / f"{'half' if half else 'whole'}.yaml", half=half)
    return prepare(config, source, changes={}, max_runs=RUNS, at=time.time())


def store_half(folder: Path) -> None:
    """Submit half of the grid, so that the ledger knows it."""
    config = load_config({"workspace": str(folder / "runs")}, environ={}, folder=folder)
    submit(open_context(config, create=True), prepared(config, folder, half=True))


def measure(folder: Path) -> list[tuple[str, float]]:
    """Expand the whole grid and check it; return seconds by step."""
    config = load_config({"workspace": str(folder / "runs")}, environ={}, folder=folder)
    context = open_context(config)
    began = time.perf_counter()
    whole = prepared(config, folder, half=False)
    expanded = time.perf_counter()
    document = summary(context, whole)
    checked = time.perf_counter()
    assert (document["runs"], document["new"]) == (RUNS, RUNS // 2), document
    return [("expand and hash", expanded - began), ("check against the ledger", checked - expanded)]


def main() -> None:
    """Print the table; exit 1 where a target is missed."""
    if len(sys.argv) > 1:
        store_half(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([sys.executable, __file__, name], check=True)
        steps = measure(Path(name))
    total = sum(seconds for _, seconds in steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for what, seconds in steps:
        print(f"{what:28} {seconds:8.2f} s")
    print(f"{f'all of {RUNS:,} runs':28} {total:8.2f} s    target {TARGET_S:g} s")
    print(f"{'peak memory':28} {peak:8.0f} MiB  target {TARGET_MIB:g} MiB")
    sys.exit(total > TARGET_S or peak > TARGET_MIB)


if __name__ == "__main__":
    main()

"""Five short runs in one warm worker against five cold processes, side by side and interleaved.

    python benchmarks/warm.py [--rounds 3] [--runs 5] [--job small]

Both sides are the real agent on the same runs, one at a time on one core: the warm one hosts all of
them in one allocation; cold, each run gets an allocation and an agent of its own. Prints the wall
times and the median ratio.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.config.config import load_config
from vtjobs.jobs.config.host import visible_gpus
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.lineage import completed_by
from vtjobs.orchestrator.backends.base import Room
from vtjobs.orchestrator.loop.context import Context, open_context
from vtjobs.orchestrator.loop.plan import pack
from vtjobs.orchestrator.requests.submit import prepare, submit

TARGET = 0.5
GRID = """\
name: short
backbones:
  - {backbone}
datasets: [digits]
heads: [supervised]
seeds: {runs}
recipe: quickstart
train: {train}
resources: {{gpus_per_node: {gpus}}}
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What each run trains."""

    backbone: str
    """As a grid names it."""
    train: str
    """Of the recipe, as a grid gives it."""
    gpus: int = 0


SMALL = Job(
    backbone="vit_small_patch16_224: {patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}",
    train="{epochs: 2, warmup_epochs: 0, batch_size: 128}",
)
COMPILED = Job(
    backbone="vit_small_patch16_224: {patch_size: 8, embed_dim: 96, depth: 6, num_heads: 3}",
    train="{epochs: 2, warmup_epochs: 0, batch_size: 128, compile: true}",
)
CIFAR_SHAPED = Job(
    backbone="deit_tiny_patch16_224",
    train="{epochs: 20, warmup_epochs: 0, batch_size: 128, image_size: 224}",
)
JOBS = {"small": SMALL, "compiled": COMPILED, "cifar": CIFAR_SHAPED}


def main() -> int:
    """Measure, print, and say by the exit status whether the target is met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--job", choices=JOBS, default="small")
    options = parser.parse_args()
    job = JOBS[options.job]
    # What torch.compile keeps on disk is there for both sides.
    measure(1, apart=True, job=job)
    ratios = []
    print(f"{'round':>5} {'warm s':>8} {'cold s':>8} {'ratio':>6}")
    for number in range(1, options.rounds + 1):
        # The order alternates, so that neither side always meets the warmer page cache.
        sides = ["warm", "cold"] if number % 2 else ["cold", "warm"]
        seconds = {side: measure(options.runs, apart=side == "cold", job=job) for side in sides}
        ratios.append(seconds["warm"] / seconds["cold"])
        print(
            f"{number:>5} {seconds['warm']:>8.2f} {seconds['cold']:>8.2f} {ratios[-1]:>6.2f}",
            flush=True,
        )
    median = statistics.median(ratios)
    print(f"median ratio {median:.2f} (target <= {TARGET})")
    return 0 if median <= TARGET else 1


def measure(runs: int, *, apart: bool, job: Job = SMALL) -> float:
    """Return the wall time of these runs, each in an agent of its own or all in one."""
    with tempfile.TemporaryDirectory(prefix="vtjobs-warm-") as folder:
        context, grid_id, run_ids = make_workspace(Path(folder), runs, job)
        groups = [[run_id] for run_id in run_ids] if apart else [run_ids]
        allocations = [allocate(context, grid_id, group, gpus=job.gpus) for group in groups]
        began = time.monotonic()
        for allocation in allocations:
            serve(context, allocation, job.gpus)
        seconds = time.monotonic() - began
        for run_id in run_ids:
            assert completed_by(context.workspace.run(run_id), 2) == 1, (
                f"run {run_id} did not complete"
            )
        context.ledger.engine.dispose()
    return seconds


def make_workspace(folder: Path, runs: int, job: Job) -> tuple[Context, str, list[str]]:
    """Make a workspace with a grid whose runs nobody has started."""
    config = load_config({"workspace": str(folder / "runs")}, folder=folder)
    context = open_context(config, create=True)
    path = folder / "grid.yaml"
    path.write_text(GRID.format(runs=runs, **asdict(job)))
    prepared = prepare(context.config, str(path), changes={}, max_runs=1000, at=time.time())
    submit(context, prepared)
    return context, prepared.frozen.grid_id, [run[0] for run in prepared.frozen.runs]


def allocate(
    context: Context,
    grid_id: str,
    run_ids: list[str],
    *,
    gpus: int,
    paths: Mapping[str, str] = MappingProxyType({}),
) -> Allocation:
    """Write down an allocation that hosts these runs one after another."""
    candidates = [Task(run_id=run_id, grid_id=grid_id, attempt=1) for run_id in run_ids]
    room = Room(lanes=1, tasks=len(run_ids))
    (made,) = pack(
        candidates,
        Shape(backend="local", gpus=gpus),
        room,
        at=time.time(),
        data_root="/none",
        paths=dict(paths),
    )
    write_new(context.workspace.allocation(made.token), to_json(made.to_dict()))
    return made


def serve(context: Context, allocation: Allocation, gpus: int) -> None:
    """Run the agent of an allocation to its end, with as many GPUs."""
    root = str(context.workspace.root)
    command = [
        sys.executable,
        "-m",
        "vtjobs.workers.agent",
        "--workspace",
        root,
        "--token",
        allocation.token,
    ]
    shown = {"CUDA_VISIBLE_DEVICES": ",".join(visible_gpus()[:gpus]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **shown})
    if done.returncode:
        raise RuntimeError(f"the agent ended with {done.returncode}: {done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())

"""Ray.

Seconds from submission to the first epoch, and runs per minute, beside `ray job submit` and the
local queue.

python benchmarks/ray.py [--noops 50] [--runs 20]

One private cluster of one node serves all three; they take turns. A no-op is a job that ends at
once, by `ray job submit` (one process per job, as its documentation has it) and through our client.
A tiny run is two epochs of a small model.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
UP, DOWN = (HERE.parent / "deploy" / "ray-dev" / name for name in ("up", "down"))
GRID = """\
name: {name}
backbones: [{{vit_small_patch16_224: {{patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}}}}]
datasets: [digits]
heads: [supervised]
seeds: {seeds}
recipe: quickstart
train: {{epochs: 2, warmup_epochs: 0, batch_size: 128}}
resources: {{gpus_per_node: {gpus}}}
"""


def cluster_env(folder: Path) -> dict[str, str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VTJOBS_", "RAY_"))
    }
    own = {**env, "VTJOBS_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, UP, folder, "--nodes=1", "--gpus=2", "--cpus=4", "--fast"]
    subprocess.run(command, env=own, check=True, stdout=subprocess.DEVNULL)
    words = [
        line.removeprefix("export ").split("=", 1)
        for line in (folder / "env").read_text().splitlines()
    ]
    return {**own, **dict(words), "VTJOBS_POLL_S": "1"}


def timed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def plain(env: dict[str, str], count: int, command: list[str]) -> None:
    """Submit jobs by Ray's own command, one process each, and wait for all of them."""
    ray = str(Path(sys.executable).parent / "ray")
    for index in range(count):
        name = f"plain-{time.time_ns()}-{index}"
        words = [
            ray,
            "job",
            "submit",
            "--no-wait",
            "--entrypoint-num-cpus=1",
            "--submission-id",
            name,
        ]
        subprocess.run([*words, "--", *command], env=env, check=True, capture_output=True)
    wait_for_jobs(env, "plain-")


def wait_for_jobs(env: dict[str, str], prefix: str) -> None:
    from vtjobs.orchestrator.backends.ray.api import Api

    os.environ["RAY_AUTH_TOKEN_PATH"] = env["RAY_AUTH_TOKEN_PATH"]
    api = Api(env["RAY_ADDRESS"])
    while any(
        job["status"] in ("PENDING", "RUNNING")
        for job in api.ask("/api/jobs/", deadline_s=10)
        if str(job["submission_id"]).startswith(prefix)
    ):
        time.sleep(0.2)


def ours(env: dict[str, str], count: int) -> None:
    """Submit the same no-ops through our client."""
    from vtjobs.orchestrator.backends.ray.api import Api

    os.environ["RAY_AUTH_TOKEN_PATH"] = env["RAY_AUTH_TOKEN_PATH"]
    api = Api(env["RAY_ADDRESS"])
    for index in range(count):
        body = {
            "submission_id": f"ours-{time.time_ns()}-{index}",
            "entrypoint": "true",
            "entrypoint_num_cpus": 1,
        }
        api.ask("/api/jobs/", body=body, deadline_s=30)
    wait_for_jobs(env, "ours-")


def grid(
    env: dict[str, str], folder: Path, backend: str, runs: int, *, name: str
) -> tuple[float, float]:
    """Train a grid to its end; return the seconds to its first step, and to its end."""
    gpus = 1 if backend == "ray" else 0
    path = folder / f"{name}.yaml"
    path.write_text(GRID.format(name=name, seeds=runs, gpus=gpus))
    workspace = folder / name
    began = time.time()
    command = [
        sys.executable,
        "-m",
        "vtjobs.cli",
        "submit",
        str(path),
        "--backend",
        backend,
        "--wait",
    ]
    subprocess.run(
        [*command, "--workspace", str(workspace)], env=env, check=True, capture_output=True
    )
    ended = time.time()
    return first_epoch(workspace) - began, ended - began


def first_epoch(workspace: Path) -> float:
    from vtjobs.jobs.workspace.journal import read_all

    journals = workspace.glob("*/*/attempts/*/journal-*.jsonl")
    return min(
        event["at"]
        for journal in journals
        for event in read_all(journal)
        if event["kind"] == "epoch"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noops", type=int, default=50)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vtjobs-bench-", dir="/dev/shm"))
    try:
        env = cluster_env(folder / "ray")
        ours(env, 1)
        by_command = timed(lambda: plain(env, options.noops, ["true"]))
        by_api = timed(lambda: ours(env, options.noops))
        times = (
            f"ray job submit {by_command:.1f} s, our client {by_api:.1f} s:"
            f" {by_api / by_command:.2f}"
        )
        print(f"{options.noops} no-ops: {times}")
        first, total = grid(env, folder, "ray", options.runs, name="ray")
        local_first, local_total = grid(env, folder, "local", options.runs, name="local")
        print(
            f"first epoch after submission: ray {first:.1f} s, local {local_first:.1f} s:"
            f" {first / local_first:.2f}"
        )
        rate, local_rate = 60 * options.runs / total, 60 * options.runs / local_total
        print(
            f"{options.runs} tiny runs per minute: ray {rate:.1f}, local {local_rate:.1f}:"
            f" {rate / local_rate:.2f}"
        )
        single = folder / "one.yaml"
        single.write_text(GRID.format(name="one", seeds=1, gpus=0))
        train = [
            sys.executable,
            "-m",
            "vtjobs.cli",
            "submit",
            str(single),
            "--backend",
            "local",
            "--wait",
        ]
        few = max(2, options.runs // 5)
        each = timed(
            lambda: plain(env, few, ["sh", "-c", f"{' '.join(train)} --workspace $(mktemp -d)"])
        )
        plainly = 60 * few / each
        print(
            f"tiny runs per minute, one `ray job submit` each: {plainly:.1f}: {plainly / rate:.2f}"
            " of ours"
        )
        return 0
    finally:
        subprocess.run([sys.executable, DOWN, folder / "ray"], check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

"""How long it takes to submit many runs.

Vtjobs, raw `sbatch --array` and submitit's `map_array`, side by side.

    python benchmarks/submit.py [--sizes 100 1000 10000]

On a private SLURM cluster (deploy/slurm-dev). The jobs may not begin before tomorrow, so that
nothing but submission is measured: for vtjobs the whole command `vtjobs submit`, interpreter start,
expansion, ledger and workspace included; for the others the calls alone, cut at MaxArraySize by
hand, since neither does that itself. After each the queue is emptied.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent.parent / "deploy" / "slurm-dev"
MOST = 1001
# MaxArraySize of the cluster: indices 0 to 1000.
BEGIN = "now+1days"
GRID = """\
name: many
backbones: [vit_mini]
datasets: [digits]
heads: [supervised]
seeds: {runs}
recipe: quickstart
resources: {{gpus_per_node: 0, walltime: 10m}}
backend: {{slurm: {{extra: {{begin: {begin}}}}}}}
"""


def by_vtjobs(runs: int, folder: Path) -> None:
    grid = folder / "grid.yaml"
    grid.write_text(GRID.format(runs=runs, begin=BEGIN))
    command = [
        str(Path(sys.executable).with_name("vtjobs")),
        "submit",
        str(grid),
        "--workspace",
        str(folder / "runs"),
    ]
    subprocess.run(command, check=True, capture_output=True)


def by_sbatch(runs: int, folder: Path) -> None:
    script = folder / "job.sh"
    script.write_text("#!/bin/bash\ntrue\n")
    for start in range(0, runs, MOST):
        array = f"--array=0-{min(MOST, runs - start) - 1}"
        command = [
            "sbatch",
            array,
            f"--begin={BEGIN}",
            "--time=10",
            f"--output={folder}/%A_%a.log",
            str(script),
        ]
        subprocess.run(command, check=True, capture_output=True)


def by_submitit(runs: int, folder: Path) -> None:
    import submitit

    executor = submitit.AutoExecutor(folder=folder, cluster="slurm")
    executor.update_parameters(
        timeout_min=10, slurm_array_parallelism=MOST, slurm_additional_parameters={"begin": BEGIN}
    )
    for start in range(0, runs, MOST):
        executor.map_array(abs, list(range(start, min(start + MOST, runs))))


SIDES = {"vtjobs submit": by_vtjobs, "sbatch --array": by_sbatch, "submitit map_array": by_submitit}


def measure(name: str, runs: int) -> tuple[float, int, int]:
    """Submit so many runs one way.

    Return seconds, files left behind, and elements that SLURM has.
    """
    with tempfile.TemporaryDirectory(prefix="vtjobs-submit-") as text:
        folder = Path(text)
        began = time.perf_counter()
        SIDES[name](runs, folder)
        seconds = time.perf_counter() - began
        files = sum(path.is_file() for path in folder.rglob("*"))
        queued = subprocess.run(
            ["squeue", "-h", "-r"], check=True, capture_output=True, text=True
        ).stdout.count("\n")
        subprocess.run(["scancel", f"--user={os.getuid()}"], check=True)
        while subprocess.run(["squeue", "-h"], check=True, capture_output=True, text=True).stdout:
            time.sleep(0.2)
    return seconds, files, queued


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vtjobs-cluster-") as folder:
        subprocess.run([DEPLOY / "up", folder, "--fast"], check=True, capture_output=True)
        os.environ["SLURM_CONF"] = f"{folder}/slurm.conf"
        try:
            print(f"{'runs':>8} {'how':20} {'seconds':>8} {'files':>7} {'in squeue':>10}")
            for runs in options.sizes:
                for name in SIDES:
                    seconds, files, queued = measure(name, runs)
                    print(f"{runs:8,} {name:20} {seconds:8.2f} {files:7,} {queued:10,}", flush=True)
        finally:
            subprocess.run([DEPLOY / "down", folder], check=True, capture_output=True)


if __name__ == "__main__":
    main()

"""What software and hardware an attempt ran on."""

import os
import platform
import socket
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..jobs.atomic_files import to_json, write_over
from ..jobs.config.host import visible_gpus
from ..jobs.documents import Document
from ..jobs.run.spec import NUMERICS

PACKAGES = ("vtjobs", "torch", "torchvision", "timm", "numpy")
MOST_DIFF_BYTES = 256 << 10


def software() -> dict[str, str]:
    """Return the versions that may change a result, without importing anything heavy."""
    found = {"python": platform.python_version(), "numerics": str(NUMERICS)}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def trains_on_gpu(gpus: int) -> bool:
    """Whether ranks train on the GPUs that they were granted.

    A node whose GPUs are not real says otherwise.
    """
    return bool(gpus) and os.environ.get("VTJOBS_DEVICE") != "cpu"


class Origin(Document, frozen=True, kw_only=True):
    """What two attempts must share for a resume to be exact."""

    world_size: int
    """Ranks of all nodes."""
    threads: int
    """CPU threads of a rank."""
    device: str
    """cpu, or the models of the GPUs."""
    software: dict[str, str]
    """Package -> version; also python, and numerics of vtjobs itself."""


def origin(*, world_size: int, threads: int, on_gpu: bool) -> Origin:
    """Return what an attempt on this node has to share with others."""
    device = "cpu"
    if on_gpu:
        device = _gpu_names() or "cuda"
    return Origin(world_size=world_size, threads=threads, device=device, software=software())


def write_environment(path: Path) -> None:
    """Write down versions, code, host and GPUs."""
    facts = {
        "software": software(),
        "host": socket.gethostname(),
        "kernel": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": {"visible": visible_gpus(), "names": _gpu_names()},
        "executable": sys.executable,
        "git": _git(),
    }
    write_over(path, to_json(facts))


@cache
def _gpu_names() -> str:
    """Return the models of this node's GPUs, each once.

    A run may see more or fewer of them the next time.
    """
    if not visible_gpus():
        return ""
    lines = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    return ", ".join(sorted({line.strip() for line in lines}))[:200]


@cache
def _git() -> dict[str, str] | None:
    """Return the commit and the uncommitted changes of the running code, if it is in git."""
    here = str(Path(__file__).parent)
    commit = _output("git", "-C", here, "rev-parse", "HEAD")
    if not commit:
        return None
    return {"commit": commit, "diff": _output("git", "-C", here, "diff", "HEAD")[:MOST_DIFF_BYTES]}


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=5, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip()

"""What this machine has, found without loading anything heavy."""

import os
import pwd
import socket
import subprocess
from pathlib import Path

from .backends import BACKENDS

# Of the submitter's environment, what a job must not inherit: secrets, and another scheduler's job.
SCRUBBED = (
    "VTJOBS_LEDGER",
    "PG",
    "MASTER_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    *(prefix for backend in BACKENDS.values() for prefix in backend.variables),
)
KEPT = frozenset(name for backend in BACKENDS.values() for name in backend.kept)


# Of cgroups version 2 and 1, as a container sees its own.
CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def scrubbed_names() -> list[str]:
    """Return the variables of this process that its jobs must not inherit."""
    return sorted(filter(is_scrubbed, os.environ))


def is_scrubbed(name: str) -> bool:
    """Return whether no job may inherit a variable, whoever asks for it."""
    return name.startswith(SCRUBBED) and name not in KEPT


def clean_environment() -> dict[str, str]:
    """Return this process's environment without secrets and other schedulers' words."""
    gone = set(scrubbed_names())
    return {name: value for name, value in os.environ.items() if name not in gone}


def address_towards(host: str) -> str:
    """Return this machine's address on the way to a host, or "" where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing; the kernel only chooses the route.
            probe.connect((host, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def user_here() -> str:
    """Return who runs this process, and where: user@host."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    return f"{name}@{socket.gethostname()}"


def cpu_count() -> int:
    """Return the CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Return the memory that processes of this machine, or of this container, may use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in CGROUP_LIMITS:
        try:
            limits.append(int(path.read_text()))
        except (OSError, ValueError):
            # There is none: the file is missing, or says "max".
            continue
    return min(limits)


def visible_gpus() -> list[str]:
    """Return the ids of this machine's GPUs, as CUDA_VISIBLE_DEVICES writes them, without loading
    CUDA.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [part for part in chosen.split(",") if part.strip() not in ("", "-1")]
    # CUDA counts the devices that it finds from 0; in a container their nodes may have other
    # numbers.
    return [str(index) for index, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def gpu_capability() -> float | None:
    """Return the smallest compute capability of this machine's GPUs, such as 7.0 for a V100.

    None where unknown.
    """
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=5, check=True, stdin=subprocess.DEVNULL
        )
        return min(float(line) for line in done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None

"""Whether the kernel has killed processes around us for want of memory.

The group's own counter says so.
"""

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def oom_kills(groups: str | None = None, root: Path = _ROOT) -> int:
    """Return how many processes of this process's control group were killed for want of memory.

    Args:
        groups: the content of /proc/self/cgroup; read where not given.
        root: where control groups are mounted.
    """
    try:
        text = Path("/proc/self/cgroup").read_text() if groups is None else groups
    except OSError:
        return 0
    total = 0
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            total += _counter(root / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            total += _counter(root / "memory" / path.lstrip("/") / "memory.oom_control")
    return total


def _counter(path: Path) -> int:
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return 0
    return next((int(word[1]) for word in words if len(word) == 2 and word[0] == "oom_kill"), 0)

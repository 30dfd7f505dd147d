"""What processes use, as /proc tells it."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a process and its descendants use."""

    cpu_s: float
    """CPU time so far, with that of descendants that have ended."""
    memory_bytes: int
    """Memory now, of all of them; a page that n processes share counts as 1/n for each (PSS)."""


def use_of_trees(roots: Iterable[int]) -> dict[int, ProcessUse]:
    """Return what each of these processes uses with its descendants; a dead one is left out.

    One pass over /proc: a kernel need not say which children a process has. Shares of pages are
    summed for these trees alone: that takes the kernel milliseconds for each GiB.
    """
    found = {pid: (parent, use) for pid, parent, use in _all()}
    children: dict[int, list[int]] = defaultdict(list)
    for pid, (parent, _) in found.items():
        children[parent].append(pid)
    uses: dict[int, ProcessUse] = {}
    for root in roots:
        if root in found:
            members = {pid: found[pid][1] for pid in _tree(root, children)}
            cpu_s = sum(use.cpu_s for use in members.values())
            memory = (_pss_bytes(pid) or use.memory_bytes for pid, use in members.items())
            uses[root] = ProcessUse(cpu_s, sum(memory))
    return uses


def _pss_bytes(pid: int) -> int | None:
    """Return a process's proportional share of memory; None where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as stream:
            lines = stream.read(4096).splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:")), None)


def _tree(root: int, children: dict[int, list[int]]) -> Iterator[int]:
    left = [root]
    while left:
        pid = left.pop()
        yield pid
        left += children.get(pid, ())


def _all() -> Iterator[tuple[int, int, ProcessUse]]:
    """Yield process, parent and use of every process that can be seen."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _read(int(name))) is not None:
            yield int(name), *found


def _read(pid: int) -> tuple[int, ProcessUse] | None:
    """Return a process's parent and use; None of one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:
            line = stream.read(4096)
    except OSError:
        return None
    # Behind the program's name, which may hold anything: state, parent; and from the twelfth on
    # the ticks of its own and of its children that were waited for; later its pages.
    fields = line.rpartition(b")")[2].split()
    ticks = sum(map(int, fields[11:15]))
    use = ProcessUse(ticks / _TICKS_PER_S, int(fields[21]) * _PAGE_BYTES)
    return int(fields[1]), use

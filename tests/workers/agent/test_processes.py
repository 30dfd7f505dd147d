"""What /proc says of processes: their own figures and those of what they started."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from vtjobs.workers.agent.processes import use_of_trees

from ...support.lab import children, wait_for

MIB = 1 << 20
# Holds 64 MiB and burns CPU until it is killed.
BUSY = "held = bytearray(b'x') * (64 << 20); print('on', flush=True)\nwhile True: pass"
# Starts that one and does nothing itself.
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
# Has waited for a child that burnt half a second.
HALF = "import time\nwhile time.process_time() < 0.5: pass"
WAITED = (
    f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HALF!r}]);"
    " print('on', flush=True); sys.stdin.read()"
)


@contextmanager
def started(code: str) -> Iterator[int]:
    """Run a program until it says that it is ready; end it and what it started afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline()
        yield process.pid
    finally:
        for child in children(process.pid):
            os.kill(child, 9)
        process.kill()
        process.communicate()


def test_a_process_counts_with_its_descendants() -> None:
    with started(PARENT) as pid:
        own = os.getpid()
        wait_for(lambda: use_of_trees([pid])[pid].cpu_s > 0.3, 30)
        uses = use_of_trees([pid, own])
        (child,) = children(pid)
        below = use_of_trees([child])[child]
    assert uses[pid].memory_bytes > below.memory_bytes > 64 * MIB
    assert uses[own].memory_bytes > uses[pid].memory_bytes, "it is one of this process's own"


def test_the_time_of_a_descendant_that_has_ended_stays() -> None:
    with started(WAITED) as pid:
        assert children(pid) == []
        assert use_of_trees([pid])[pid].cpu_s >= 0.5


def test_a_process_that_is_gone_is_left_out() -> None:
    with started(PARENT) as pid:
        pass
    assert use_of_trees([pid]) == {}


SHARING = """
import os, sys
held = bytearray(b"x") * (256 << 20)
if os.fork():
    print("on", flush=True)
sys.stdin.read()
"""


def test_memory_that_processes_share_counts_once() -> None:
    with started(SHARING) as pid:
        wait_for(lambda: children(pid))
        together = use_of_trees([pid])[pid].memory_bytes
    assert 256 * MIB < together < 384 * MIB

"""The runs that one rank's process does, one after another.

After a completed run it stays for the next one of its lane: imports, the GPU's context, its
libraries and compiled graphs are there already. It stays only if it is as a new process would be,
so that a run cannot tell whether it is the first.
"""

import gc
import json
import multiprocessing
import os
import socket
import sys
import threading
from pathlib import Path

from ...jobs.documents import changed, from_plain, to_plain
from ...jobs.errors import VtjobsError
from ...jobs.run.spec import RunSpec
from ...jobs.run.states import ExitCode
from ..orders import Order, RankOrder
from ..reports import Begun, Finished, StayerReport
from .rank import run_rank

# What libraries such as cuBLAS may keep of a GPU's memory for themselves.
WORKSPACE_BYTES = 128 << 20
# Threads of libraries that serve any run: progress bars, and processes that compile.
OF_LIBRARIES = ("tqdm_monitor", "InductorSubproc")


def do_runs(order: RankOrder, handles: list[int]) -> int:
    """Do a run, and those that its agent sends afterwards; return the exit code.

    Args:
        order: of the first run.
        handles: its events, control and log; and the socket by which further orders come, or rank
            0's listening socket, or nothing.
    """
    if not order.order.reuse:
        return _do(order, handles)
    agent = socket.socket(fileno=handles.pop())
    graphs = _Graphs()
    while True:
        graphs.prepare_for(order.order)
        code = _do(order, handles)
        _let_go_of_log()
        if code != ExitCode.COMPLETED or not is_as_new():
            return code
        following = _next(agent, order)
        if following is None:
            return code
        order, handles = following


def _do(order: RankOrder, handles: list[int]) -> int:
    events, control, log, *listener = handles
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    code = run_rank(
        order, events=events, control=control, listener=listener[0] if listener else None
    )
    if order.order.reuse:
        os.close(events)
        os.close(control)
    return code


def _let_go_of_log() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _next(agent: socket.socket, done: RankOrder) -> tuple[RankOrder, list[int]] | None:
    """Report the end of a run, and return the order of the next one; None where there is none."""
    try:
        _send(agent, Finished(ticket=done.ticket))
        message, handles, _, _ = socket.recv_fds(agent, 1 << 20, 8)
        if not message:
            return None
        order = from_plain(json.loads(message), RankOrder)
        _send(agent, Begun(ticket=order.ticket))
    except OSError:
        return None
    return order, handles


def _send(agent: socket.socket, report: StayerReport) -> None:
    agent.sendall(json.dumps(to_plain(report)).encode())


def is_as_new() -> bool:
    """Whether a run left nothing behind: no process, no thread, no weights, no memory of a GPU."""
    import torch

    gc.collect()
    threads = [one for one in threading.enumerate() if not one.name.startswith(OF_LIBRARIES)]
    if multiprocessing.active_children() or len(threads) > 1:
        return False
    if any(type(found) is torch.nn.Parameter for found in gc.get_objects()):
        return False
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() <= WORKSPACE_BYTES
    return True


class _Graphs:
    """The graphs that torch.compile has made in this process.

    Runs that differ in nothing but their seeds share them. For any other run they are dropped: how
    often torch compiles a function in one process is limited, and beyond that it does not.
    """

    def __init__(self) -> None:
        self._kind: object = None
        self._made = 0
        self._are_kept = False

    def prepare_for(self, order: Order) -> None:
        """Drop the graphs of earlier runs, unless they are this one's too."""
        import torch._dynamo
        from torch._dynamo.utils import counters

        made, kind = counters["stats"]["unique_graphs"], _kind(order)
        was_enough = not self._are_kept or made == self._made
        self._are_kept = kind is not None and kind == self._kind and was_enough
        if made and not self._are_kept:
            torch._dynamo.reset()
        self._kind, self._made = kind, made


def _kind(order: Order) -> tuple[RunSpec, int] | None:
    """Return all that decides an order's graphs; None where its run cannot be read."""
    try:
        spec = RunSpec.parse(Path(order.spec).read_text())
    except (OSError, VtjobsError):
        return None
    return changed(spec, seeds={}, init_from=None), order.micro_split

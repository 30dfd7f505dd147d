"""The runs that one rank's process does, one after another.

After a completed run it stays for the next one of its lane: the GPU's context, its libraries and
the compiled graphs of a cell are there already. It stays only if nothing of the run is left, so
that the next one ends with the same bits as in a process of its own.
"""

import gc
import json
import multiprocessing
import os
import socket
import sys
import threading

from ...jobs.documents import from_plain, to_plain
from ...jobs.run.states import ExitCode
from ..orders import RankOrder
from ..reports import Begun, Done, Idle, LaneReport
from .rank import run_rank

# What libraries may keep of a GPU's memory for themselves.
WORKSPACE_BYTES = 32 << 20


def do_runs(order: RankOrder, handles: list[int]) -> int:
    """Do a run, and those that its agent sends afterwards; return the exit code.

    Args:
        order: of the first run.
        handles: its events, control and log; and the socket by which further orders come, or rank
            0's listening socket, or nothing.
    """
    if not order.order.reuse:
        return _do(order, handles)
    import torch

    agent = socket.socket(fileno=handles.pop())
    seed = torch.initial_seed()
    while True:
        before = _graphs()
        code = _do(order, handles)
        if code != ExitCode.COMPLETED:
            return code
        try:
            _let_go_of_log()
            _send(agent, Done(ticket=order.ticket))
            # The first run makes the graphs. If a later one made more, the kept ones did not fit,
            # and torch compiles a function again only a few times in one process.
            is_fit = before in (0, _graphs()) and is_as_new()
            following = _next(agent) if is_fit else None
        except Exception:
            # The run has completed, whatever comes of the process.
            return code
        if following is None:
            return code
        torch.manual_seed(seed)
        order, handles = following


def _graphs() -> int:
    """Return how many graphs torch.compile has made in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


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


def _next(agent: socket.socket) -> tuple[RankOrder, list[int]] | None:
    """Wait for an order, and take it; None where there is none."""
    _send(agent, Idle())
    message, handles, _, _ = socket.recv_fds(agent, 1 << 20, 8)
    if not message:
        return None
    order = from_plain(json.loads(message), RankOrder)
    if len(handles) < len(("events", "control", "log")):
        # There were too few descriptors left to take them. It is begun in another process.
        return None
    _send(agent, Begun(ticket=order.ticket, cpu_s=sum(os.times()[:4])))
    return order, handles


def _send(agent: socket.socket, report: LaneReport) -> None:
    agent.sendall(json.dumps(to_plain(report)).encode())


def is_as_new() -> bool:
    """Whether no process, thread, parameter of a model or memory of a GPU is left of a run.

    Libraries may keep threads, which they give a name, and workspaces on the GPU.
    """
    import torch

    gc.collect()
    if multiprocessing.active_children():
        return False
    if any(one.name.startswith("Thread-") for one in threading.enumerate()):
        return False
    if any(type(found) is torch.nn.Parameter for found in gc.get_objects()):
        return False
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() <= WORKSPACE_BYTES
    return True

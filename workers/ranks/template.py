"""The warm process that ranks are forked from.

Torch and timm imported once, nothing computed, no GPU touched.

It talks with its agent over one socket: orders to fork come in with the descriptors of the new
rank, its process id and later its exit status go out. Run as `python -m
vtjobs.workers.ranks.template FD`.
"""

import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import traceback

from ...jobs.documents import from_plain, to_plain
from ..orders import RankOrder
from ..process import die_with_parent, hidden
from ..reports import Broken, Exited, Forked, Ready, TemplateReport

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def main() -> int:
    """Serve until the agent is gone."""
    agent = socket.socket(fileno=int(sys.argv[1]))
    for name in IGNORED:
        # SLURM signals every process of a step; only the agent acts on it.
        signal.signal(name, signal.SIG_IGN)
    die_with_parent()
    try:
        _warm_up()
    except Exception as error:
        _send(agent, Broken(text=f"{type(error).__name__}: {error}"[:500]))
        raise
    _send(agent, Ready())
    return _serve(agent)


def _warm_up() -> None:
    # What ranks need sooner or later: imported after the fork, it would be imported by every rank
    # of every run. The million objects that imports make live as long as the process: to look
    # through them for garbage takes a tenth of the time here, and would copy 100 MB in every rank.
    gc.disable()
    with hidden("wandb"):
        import timm.data.mixup
        import timm.optim
        import timm.scheduler
        import timm.utils  # noqa: F401
    import torchvision.datasets  # noqa: F401

    from .. import checkpoints, data, heads, models, training

    # Ours too, all of it: after an upgrade a rank would mix two versions.
    for package in (sys.modules[__package__], checkpoints, data, heads, models, training):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    gc.freeze()
    gc.enable()


def _serve(agent: socket.socket) -> int:
    wake_read, wake_write = os.pipe()
    for handle in (wake_read, wake_write):
        os.set_blocking(handle, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(agent, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is agent:
                message, handles, _, _ = socket.recv_fds(agent, 1 << 20, 8)
                if not message:
                    return 0
                order = from_plain(json.loads(message), RankOrder)
                _fork(agent, order, handles, (wake_read, wake_write))
            else:
                os.read(wake_read, 1 << 10)
        _reap(agent)


def _fork(
    agent: socket.socket, order: RankOrder, handles: list[int], mine: tuple[int, int]
) -> None:
    template = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _become_rank(order, handles, template, (agent.fileno(), *mine))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # No clean-up of the template's: this is another process now.
            os._exit(code)
    for handle in handles:
        os.close(handle)
    _send(agent, Forked(ticket=order.ticket, pid=pid))


def _become_rank(
    order: RankOrder, handles: list[int], template: int, not_mine: tuple[int, ...]
) -> int:
    from .successive import do_runs

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with_parent()
    if os.getppid() != template:
        return 70
    os.setpgid(0, 0)
    for handle in not_mine:
        os.close(handle)
    return do_runs(order, handles)


def _reap(agent: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _send(agent, Exited(pid=pid, status=os.waitstatus_to_exitcode(status)))


def _send(agent: socket.socket, report: TemplateReport) -> None:
    agent.sendall(json.dumps(to_plain(report)).encode())


if __name__ == "__main__":
    sys.exit(main())

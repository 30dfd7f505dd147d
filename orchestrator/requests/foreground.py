"""One run on this terminal, for debugging: the same agent, without the queue."""

import subprocess
from pathlib import Path

from ...db import lookups, queries
from ...db.due import one_run
from ...db.engine import reading
from ...jobs.atomic_files import read_json, to_json, write_new
from ...jobs.config.environment import job_environment, named_variables
from ...jobs.config.host import visible_gpus
from ...jobs.config.interpreter import module_command
from ...jobs.errors import VtjobsError
from ...jobs.run.states import RunState
from ...jobs.values import asdict, changed
from ...jobs.workspace.markers import closed
from ..backends.local.backend import LocalBackend
from ..backends.local.entries import End, ProcessIdentity, Running, process_identity, write
from ..loop.context import Context
from ..loop.dispatch import LAUNCH_S, next_task
from ..loop.plan import pack, shape_of
from ..loop.tick import tick


def run_here(context: Context, run_id: str) -> str:
    """Run a pending run in the foreground; return the state it ends in.

    Raises:
        VtjobsError: the run is not pending (`vtjobs retry` or `rerun` makes it so).
    """
    backend = context.backend("local")
    assert isinstance(backend, LocalBackend)
    with reading(context.ledger.engine) as connection:
        row = one_run(connection, run_id)
        settings = queries.grid_settings(connection, {row.grid_id})[row.grid_id]
    if row.state != RunState.PENDING:
        raise VtjobsError(
            f"run {run_id} is {row.state}; only a pending run can start in the foreground"
        )
    if kept := closed(context.workspace, row.grid_id)(run_id):
        remedy = f"Let it start: vtjobs release {run_id[:8]}{context.where}"
        raise VtjobsError(f"run {run_id} may not start: {kept.text}. {remedy}")
    here = changed(settings, backend="local", site={"slots": 1})
    shape = shape_of(here, backend)
    room = backend.room(shape, here)
    (made,) = pack(
        [next_task(context, row)],
        shape,
        room,
        at=context.clock(),
        data_root=str(context.config.data_root),
        hang_s=context.config.get("hang_s"),
        decoded_gib=context.config.get("decoded_gib"),
        paths=settings.paths,
    )
    mine = _free_gpus(backend, shape.gpus_of(made.lanes))
    opened = context.ledger.open_attempts(made, launching_s=LAUNCH_S)
    if opened is None:
        raise VtjobsError(f"run {run_id} has just been started by another process")
    write_new(context.workspace.allocation(opened.token), to_json(opened.to_dict()))
    _serve(context, backend, opened.token, mine)
    tick(context, start=False)
    with reading(context.ledger.engine) as connection:
        return str(lookups.states_of(connection, [run_id])[run_id])


def _free_gpus(backend: LocalBackend, count: int) -> list[str]:
    """Return GPUs that the queue has not given out.

    Raises:
        VtjobsError: there are not enough at this moment.
    """
    taken = {gpu for entry in backend.queue.running().values() for gpu in entry.gpus}
    free = [gpu for gpu in visible_gpus() if gpu not in taken]
    if len(free) < count:
        raise VtjobsError(
            f"{count} GPUs are needed, {len(free)} are free; the local queue uses the others"
        )
    return free[:count]


def _serve(context: Context, backend: LocalBackend, token: str, mine: list[str]) -> None:
    """Run the agent as a child, known to the queue as running, and mirror its ranks' output."""
    root = str(context.workspace.root.resolve())
    words = ("--workspace", root, "--token", token, "--mirror")
    command = module_command("vtjobs.workers.agent", *words)
    allocation = read_json(context.workspace.allocation(token)) or {}
    named = named_variables(allocation.get("site") or {})
    environment = {**job_environment(named), "CUDA_VISIBLE_DEVICES": ",".join(mine)}
    process = subprocess.Popen(command, env=environment)
    identity = process_identity(process.pid) or ProcessIdentity(
        pid=process.pid, started="", boot=""
    )
    path: Path = backend.queue.folder("running") / f"{token}.json"
    write(path, Running(**asdict(identity), gpus=mine, cores=1))
    # Only now: another command that looks must find it in the queue.
    context.ledger.accepted(token, token, source="local")
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            # The terminal sends the interrupt to the agent as well: it saves and ends.
            continue
    write(backend.queue.folder("ended") / path.name, End(code=code, word=f"exit {code}"))
    path.unlink(missing_ok=True)

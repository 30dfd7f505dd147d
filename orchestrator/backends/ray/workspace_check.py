"""Whether a cluster's nodes see the workspace: asked of every node before the first run goes there.

The answer is kept in this user's cache, by workspace and node, so that only new nodes are asked
again.
"""

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....jobs.atomic_files import read_cache, to_json, write_over
from ....jobs.documents import from_plain
from ....jobs.errors import BadInput, SchedulerUnreachable
from ....jobs.grid.image_folder import cache_folder
from ....jobs.workspace.paths import Workspace
from .api import Api
from .cluster import Node, Versions, nodes, versions
from .submission import DEADLINE_S, JOBS, line_of, python

# A head that is busy takes its time to start a job.
WITHIN_S = 90.0
LOOK_S = 0.3
MARK, VERSIONS = "vtjobs-sight ", "vtjobs-versions "


def require_sight(api: Api, site: Mapping[str, Any], workspace: Workspace) -> None:
    """Refuse a cluster of which a node does not see the workspace, or may not write it.

    Raises:
        BadInput: with the nodes and what to set.
        SchedulerUnreachable: it could not be asked.
    """
    present = {node.node_id: node for node in nodes(api, deadline_s=DEADLINE_S)}
    path, shared = cache_folder() / "ray-sight.json", str(workspace.root.resolve())
    known = set(read_cache(path).get(shared, ()))
    if present.keys() <= known:
        return
    seen = {row["node_id"]: row for row in ask_nodes(api, site, workspace)}
    blind = [
        node for node_id, node in present.items() if node_id in seen and not seen[node_id]["ok"]
    ]
    if blind:
        raise BadInput(_complaint(blind, len(present), workspace))
    if unable := [row for row in seen.values() if not row["vtjobs"]]:
        raise BadInput(_broken(f"no vtjobs on {unable[0]['host']}", python(site)[0]))
    with contextlib.suppress(OSError):
        # Ids of nodes that are gone mean nothing to anybody.
        write_over(path, to_json(read_cache(path) | {shared: sorted(seen)}))


def _complaint(blind: list[Node], count: int, workspace: Workspace) -> str:
    hosts, root = ", ".join(sorted({node.host for node in blind})), workspace.root.resolve()
    return (
        f"{len(blind)} of the cluster's {count} nodes ({hosts}) cannot read or cannot write the "
        f"workspace {root}. Mount it on every node at this path, or set VTJOBS_WORKSPACE to a "
        "folder that they share"
    )


def ask_nodes(api: Api, site: Mapping[str, Any], workspace: Workspace) -> list[dict[str, Any]]:
    """Run a job that looks at the workspace from every node; return what each saw.

    Returns:
        Per node that answered `node_id`, `host` (its address), `ok` (it sees the workspace and may
        write it), `python`, `vtjobs` (its version, None where it has none).

    Raises:
        BadInput: the job failed, so agents would fail as well.
        SchedulerUnreachable: it could not be asked.
    """
    with _marker(workspace) as (path, text):
        module = "vtjobs.workers.ray_jobs.check_path"
        command = [*python(site), "-m", module, "--path", str(path), "--text", text]
        token = f"vts-{secrets.token_hex(8)}"
        api.ask(
            JOBS,
            body={"submission_id": token, "entrypoint": line_of(site, command)},
            deadline_s=DEADLINE_S,
        )
        return _answer(api, token, command[0])


@contextmanager
def _marker(workspace: Workspace) -> Iterator[tuple[Path, str]]:
    """Yield a file in the workspace, or where it is going to be, and what is in it."""
    if workspace.identity.exists():
        yield workspace.identity.resolve(), workspace.identity.read_text()
        return
    folder = workspace.root.resolve()
    while not folder.is_dir():
        folder = folder.parent
    path, text = folder / f".vtjobs-{secrets.token_hex(8)}", secrets.token_hex(16)
    try:
        path.write_text(text)
        yield path, text
    finally:
        path.unlink(missing_ok=True)


def _answer(api: Api, token: str, interpreter: str) -> list[dict[str, Any]]:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        job = api.ask(f"{JOBS}{token}", deadline_s=DEADLINE_S)
        if job["status"] in ("SUCCEEDED", "FAILED", "STOPPED"):
            logs = str(api.ask(f"{JOBS}{token}/logs", deadline_s=DEADLINE_S)["logs"])
            lines = [line.removeprefix(MARK) for line in logs.splitlines() if line.startswith(MARK)]
            if job["status"] == "SUCCEEDED" and lines:
                return list(json.loads(lines[-1]))
            if str(job.get("error_type") or "").startswith("JOB_SUPERVISOR"):
                raise SchedulerUnreachable(f"Ray at {api.address}: {job['error_type']}")
            raise BadInput(_mismatch(api, logs, interpreter) or _broken(logs, interpreter))
        time.sleep(LOOK_S)
    raise SchedulerUnreachable(
        f"Ray at {api.address}: no answer about the workspace within {WITHIN_S:.0f} s"
    )


def _mismatch(api: Api, logs: str, interpreter: str) -> str:
    """Return how the versions of the nodes' interpreter differ from the cluster's, or ""."""
    said = [line for line in logs.splitlines() if line.startswith(VERSIONS)]
    if not said:
        return ""
    theirs, mine = versions(api), from_plain(json.loads(said[-1].removeprefix(VERSIONS)), Versions)
    if theirs is None or theirs == mine:
        return ""
    return (
        f"this cluster runs {theirs}, and the interpreter {interpreter} on its nodes has {mine}. "
        f"Install ray=={theirs.ray_version} there on Python {theirs.python_version}, or set"
        " backend.ray.python to an interpreter with the cluster's versions"
    )


def _broken(logs: str, interpreter: str) -> str:
    last = next((line for line in reversed(logs.splitlines()) if line.strip()), "no output")
    shown = "".join(char for char in last if char.isprintable())[:200]
    return (
        f"vtjobs cannot run on this cluster ({shown}). Install it on every node for the "
        f"interpreter {interpreter}, or set another one with backend.ray.python. Commands to run "
        "first go into backend.ray.setup"
    )

"""How an allocation becomes a Ray job.

What its entrypoint runs, what it asks for, and what came of asking.

python -m vtjobs.orchestrator.backends.ray.submission --workspace DIR --token TOKEN    an agent
hands its runs on
"""

import argparse
import hashlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....jobs.atomic_files import current_umask, open_file
from ....jobs.config.backends import BACKENDS
from ....jobs.config.environment import named_variables, shell_filter
from ....jobs.errors import SchedulerSlow, SchedulerUnreachable, VtjobsError
from ....jobs.workspace.allocation import Allocation, read_allocation
from ....jobs.workspace.paths import Workspace
from ..base import Submission, SubmitOutcome
from .api import Api, Refused, is_loopback
from .cluster import Need, Node, need_from, nodes

DEADLINE_S = 15.0
# Longer than ranks get to reach a common step and save; Ray's own 3 s would kill them before.
STOP_WAIT_S = 150
NODE_ID = "ray.io/node-id"
JOBS = "/api/jobs/"


def submit(api: Api, allocation: Allocation, workspace: Workspace) -> Submission:
    """Submit an allocation under its token, which Ray takes once; say whether Ray has it."""
    try:
        avoid = (
            bad_nodes(allocation, nodes(api, deadline_s=DEADLINE_S)) if allocation.exclude else []
        )
    except SchedulerUnreachable:
        # A bad node is better than none.
        avoid = []
    # Here, so that it has the mode of the workspace's files; the shell on the node appends to it.
    os.close(open_file(workspace.agent_log(allocation.token, 0, 0), os.O_WRONLY))
    try:
        api.ask(JOBS, body=request(allocation, workspace, avoid=avoid), deadline_s=DEADLINE_S)
    except Refused as error:
        if error.is_known:
            return Submission(outcome=SubmitOutcome.ACCEPTED, job_id=allocation.token)
        outcome = SubmitOutcome.REFUSED if 400 <= error.status < 500 else SubmitOutcome.UNCLEAR
        return Submission(outcome=outcome, reason=f"Ray: {error}")
    except SchedulerUnreachable as error:
        slow = isinstance(error, SchedulerSlow)
        return Submission(outcome=SubmitOutcome.UNCLEAR, reason=str(error), is_slow=slow)
    return Submission(outcome=SubmitOutcome.ACCEPTED, job_id=allocation.token)


def request(
    allocation: Allocation, workspace: Workspace, *, avoid: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the body of the submission.

    Args:
        allocation: what is submitted, with the site's settings in it.
        workspace: where the agent finds it and writes its log.
        avoid: ids of nodes that it shall not run on.
    """
    site = allocation.site
    found: dict[str, Any] = {
        "submission_id": allocation.token,
        "entrypoint": entrypoint(allocation, workspace, avoid=avoid),
        # Whoever looks at a job may read these: no secret that the user has not named.
        "runtime_env": {"env_vars": {**_named(site), "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}},
        "metadata": {
            "vtjobs_grid": allocation.all_tasks[0].grid_id,
            "vtjobs_runs": str(len(allocation.all_tasks)),
            "vtjobs_kind": kind_of(need_from(allocation), allocation.shape.nodes, workspace),
        },
    }
    if allocation.shape.nodes > 1:
        # Without resources of its own it runs on the head and gathers the nodes.
        return found
    found |= {"entrypoint_num_cpus": site["cpus"], "entrypoint_num_gpus": site["gpus"]}
    if site["custom"]:
        found["entrypoint_resources"] = site["custom"]
    if avoid:
        found["entrypoint_label_selector"] = selector(avoid)
    return found


def entrypoint(allocation: Allocation, workspace: Workspace, *, avoid: Sequence[str] = ()) -> str:
    """Return the line of shell that becomes the agent, or what starts one on each of several nodes.

    It replaces the shell, so that a stop reaches it, and logs into the workspace: Ray's logs go
    with its head.
    """
    root, token = str(workspace.root.resolve()), allocation.token
    module = "vtjobs.workers.agent"
    more = ["--index", "0", "--node", "0"]
    if allocation.shape.nodes > 1:
        site = allocation.site
        bundle = {"GPU": site["gpus"], "CPU": site["cpus"], **site["custom"]}
        module = "vtjobs.workers.ray_jobs.nodes"
        more = ["--nodes", str(allocation.shape.nodes), "--bundle", json.dumps(bundle)]
        more += ["--avoid", json.dumps(selector(avoid))] if avoid else []
    command = [*python(allocation.site), "-m", module, "--workspace", root, "--token", token, *more]
    log = workspace.agent_log(token, 0, 0).resolve()
    return line_of(allocation.site, command) + f" >> {shlex.quote(str(log))} 2>&1"


def line_of(site: Mapping[str, Any], command: Sequence[str]) -> str:
    """Return the shell lines that end as a command, after the site's own."""
    # Ray's processes have the umask of whoever started the cluster.
    mask = f"umask {current_umask():04o}"
    # And the environment, with whatever keys were in it.
    mine = shell_filter(named_variables(site), BACKENDS["ray"].variables)
    return "\n".join([mask, "cd /", mine, *site.get("setup", ()), f"exec {shlex.join(command)}"])


def _named(site: Mapping[str, Any]) -> dict[str, str]:
    """Return the named variables that this process has; the nodes do not inherit its others."""
    named = named_variables({"environment": site.get("environment")})
    return {name: os.environ[name] for name in sorted(named) if name in os.environ}


def kind_of(need: Need, nodes_each: int, workspace: Workspace) -> str:
    """Return what the places of one workspace have in common that take as much.

    They follow each other.
    """
    return (
        f"{nodes_each} x {need} for"
        f" {hashlib.sha256(str(workspace.root.resolve()).encode()).hexdigest()[:12]}"
    )


def python(site: Mapping[str, Any]) -> list[str]:
    """Return the interpreter on the nodes."""
    return [site.get("python") or sys.executable, "-P"]


def successor(allocation: Allocation, workspace: Workspace) -> tuple[str, ...]:
    """Return the command by which a node hands on its unfinished runs."""
    root = str(workspace.root.resolve())
    module = "vtjobs.orchestrator.backends.ray.submission"
    return (*python(allocation.site), "-m", module, "--workspace", root, "--token", "{token}")


def selector(avoid: Sequence[str]) -> dict[str, str]:
    """Return Ray's label selector for every node but these."""
    return {NODE_ID: f"!in({','.join(avoid)})"}


def bad_nodes(allocation: Allocation, present: Sequence[Node]) -> list[str]:
    """Return the ids of the nodes to avoid; none where too few would be left.

    A bad node is better than none.
    """
    need = need_from(allocation)
    bad = [node.node_id for node in present if node.host in allocation.exclude]
    left = [node for node in present if node.node_id not in bad and need.fits(node)]
    return bad if len(left) >= allocation.shape.nodes else []


def is_head() -> bool:
    """Whether this node is the one where Ray's head is."""
    host = os.environ.get("RAY_ADDRESS", "").rpartition(":")[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Only an address of this machine can be bound to.
            probe.bind((host, 0))
        except OSError:
            return False
    return bool(host)


def main() -> int:
    """Submit an allocation whose file is there already."""
    parser = argparse.ArgumentParser(prog="vtjobs.orchestrator.backends.ray.submission")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--token", required=True)
    options = parser.parse_args()
    workspace = Workspace(options.workspace)
    try:
        workspace.check()
        allocation = read_allocation(workspace.allocation(options.token))
        if allocation is None:
            print(f"{options.token}: no such allocation", file=sys.stderr)
            return 1
        api = Api(allocation.site["address"], insecure=allocation.site["insecure"])
        if is_loopback(api.address) and not is_head():
            # A tunnel of the submitter's: who listens there on this node is somebody else.
            print(f"{api.address} does not lead to the head from this node", file=sys.stderr)
            return 1
        api.require_safe(deadline_s=DEADLINE_S)
        found = submit(api, allocation, workspace)
    except VtjobsError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(found.outcome, found.reason, file=sys.stderr)
    return 0 if found.outcome is SubmitOutcome.ACCEPTED else 1


if __name__ == "__main__":
    sys.exit(main())

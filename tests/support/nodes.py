"""Several agents on this machine, each as the node of one allocation."""

import os
import subprocess
import sys
from typing import Any

from vtjobs.jobs.atomic_files import to_json, write_over
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation
from vtjobs.jobs.workspace.journal import Line, read_all

from .lab import Lab


def on_two_nodes(lab: Lab, run_ids: list[str], **settings: Any) -> Allocation:
    """Put runs into an allocation of two nodes; this machine's own backend would refuse it."""
    made = lab.allocate(run_ids, **settings)
    made = changed(made, shape=changed(made.shape, nodes=2))
    write_over(lab.context.workspace.allocation(made.token), to_json(made.to_dict()))
    return made


def start_agent(
    lab: Lab, allocation: Allocation, *options: str, **environment: str
) -> subprocess.Popen[bytes]:
    """Start the agent of an allocation, at the head of a process group as under SLURM."""
    command = [
        sys.executable,
        "-m",
        "vtjobs.workers.agent",
        "--workspace",
        str(lab.root),
        "--token",
        allocation.token,
    ]
    with (lab.folder / "agent.log").open("ab") as log:
        environ = {**os.environ, **environment}
        return subprocess.Popen(
            [*command, *options], env=environ, stderr=log, start_new_session=True
        )


def start_nodes(
    lab: Lab, allocation: Allocation, **environment: str
) -> list[subprocess.Popen[bytes]]:
    """Start an agent for each node."""
    nodes = range(allocation.shape.nodes)
    return [start_agent(lab, allocation, "--node", str(node), **environment) for node in nodes]


def journal(lab: Lab, run_id: str, attempt: int, node: int) -> list[Line]:
    return read_all(lab.run(run_id).journal(attempt, node))


def end_of(lab: Lab, run_id: str, attempt: int, node: int) -> Line | None:
    """Return the end record of an attempt on a node."""
    return next(
        (event for event in journal(lab, run_id, attempt, node) if event["kind"] == "end"), None
    )

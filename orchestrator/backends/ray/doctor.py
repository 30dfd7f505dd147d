"""What `vtjobs doctor` asks a Ray cluster, and what its nodes see of the workspace."""

import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from ....jobs.config.config import Config
from ....jobs.config.site import configured
from ....jobs.errors import BadInput, SchedulerUnreachable, VtjobsError
from ....jobs.workspace.paths import Workspace
from ....jobs.workspace.stored_grid import grid_ids, read_settings
from ..base import Finding, late
from .api import Api, Refused, auth_token
from .cluster import Node, nodes
from .workspace_check import ask_nodes

DEADLINE_S = 10.0


def examine(config: Config, *, in_use: bool, probe: bool) -> list[Finding]:
    """Run the checks of a Ray cluster.

    Args:
        config: the settings.
        in_use: whether runs go there; otherwise nothing is asked.
        probe: whether to look at the workspace from every node.
    """
    if not in_use:
        return []
    found: list[Finding] = []
    try:
        for site in clusters(config):
            of_one = findings(site, look_s=float(config.get("look_s")))
            if probe and all(finding.ok for finding in of_one):
                of_one += ask(config.workspace, site)
            found += of_one
    except VtjobsError as error:
        found.append(Finding("ray", False, str(error)))
    return found


def clusters(config: Config) -> list[dict[str, Any]]:
    """Return the settings of each cluster in use: the configured one, and those that grids name."""
    usual = configured(config, "ray")
    found = {usual.get("address"): usual}
    for grid_id in grid_ids(config.workspace):
        settings = read_settings(config.workspace, grid_id)
        if settings is not None and settings.backend == "ray" and settings.site.get("address"):
            found.setdefault(settings.site["address"], settings.site)
    if len(found) > 1 and usual.get("address") is None:
        del found[None]
    return list(found.values())


def findings(site: Mapping[str, Any], *, look_s: float) -> list[Finding]:
    """Ask the head what a grid has to live with.

    Args:
        site: the site's settings.
        look_s: how long commands that only read wait for an answer.
    """
    if site.get("address") is None:
        fix = (
            "Set RAY_ADDRESS, or ray.address in vtjobs.yaml, to its dashboard, such as"
            " http://127.0.0.1:8265"
        )
        return [Finding("ray", False, "no cluster address is set", fix)]
    api = Api(site["address"], insecure=bool(site.get("insecure")))
    try:
        found = [_token(api)]
        began = time.monotonic()
        answer = api.ask("/api/version", deadline_s=DEADLINE_S)
        took_s = time.monotonic() - began
        present = nodes(api, deadline_s=DEADLINE_S)
    except (SchedulerUnreachable, Refused) as error:
        return [
            Finding(
                "ray",
                False,
                str(error),
                "Check that the head is up and that the address is its dashboard's",
            )
        ]
    except BadInput as error:
        problem = error.problems[0]
        return [Finding("ray", False, problem.message, problem.fix)]
    text = f"{answer['ray_version']} at {site['address']}"
    return [
        Finding("ray", True, text, ""),
        *late("ray", took_s, look_s),
        *found,
        _nodes(present, autoscale=bool(site.get("autoscale"))),
    ]


def _token(api: Api) -> Finding:
    try:
        api.require_safe(deadline_s=DEADLINE_S)
    except BadInput as error:
        return Finding("ray_token", False, error.problems[0].message, error.problems[0].fix)
    if auth_token():
        return Finding("ray_token", True, "the cluster requires a token; one is set", "")
    return Finding(
        "ray_token",
        False,
        "the cluster requires a token; none is set",
        "Set RAY_AUTH_TOKEN_PATH",
    )


def _nodes(present: list[Node], *, autoscale: bool) -> Finding:
    gpus = sum(node.gpus for node in present)
    kinds = sorted(set().union(*(node.kinds for node in present))) if present else []
    kind = f" {'/'.join(kinds)}" if kinds else ""
    text = (
        f"{len(present)} nodes with {gpus}{kind} GPUs and {sum(node.cpus for node in present)} CPUs"
        " in all"
    )
    if not present and not autoscale:
        return Finding("ray_nodes", False, text, "See: ray status")
    return Finding(
        "ray_nodes", True, text + (", more are added on demand" if autoscale else ""), ""
    )


def ask(workspace: Workspace, site: Mapping[str, Any]) -> list[Finding]:
    """Look at the workspace from every node."""
    seen = ask_nodes(Api(site["address"], insecure=bool(site.get("insecure"))), site, workspace)
    blind = sorted(row["host"] for row in seen if not row["ok"])
    text = f"readable and writable from {len(seen) - len(blind)} of {len(seen)} nodes"
    fix = f"Mount it on {', '.join(blind)} at this path, or set VTJOBS_WORKSPACE" if blind else ""
    found: list[Finding] = [Finding("ray_workspace", not blind, text, fix)]
    mine, theirs = version("vtjobs"), sorted({row["vtjobs"] for row in seen if "vtjobs" in row})
    fix = "" if theirs == [mine] else "Install the same version everywhere"
    found.append(
        Finding(
            "ray_vtjobs",
            theirs == [mine],
            f"vtjobs {', '.join(theirs) or '?'} on the nodes, {mine} here",
            fix,
        )
    )
    return found

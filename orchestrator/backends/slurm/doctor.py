"""What `vtjobs doctor` asks a SLURM site, and what a probe job finds on one of its nodes."""

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....jobs.config.config import Config
from ....jobs.config.host import clean_environment
from ....jobs.config.site import configured
from ....jobs.config.wheels import is_built_for, remedy
from ....jobs.errors import BadInput, SchedulerUnreachable, VtjobsError
from ....jobs.units import format_duration
from ....jobs.workspace.allocation import Allocation, Shape
from ....jobs.workspace.paths import Workspace
from ....jobs.workspace.reach import Reach, note_reach, read_reach
from ..base import Finding, late
from . import cluster, limits
from .job import generic_options, site_options
from .partitions import Partition, gives_memory, partitions
from .request import chosen, default_gpus, request
from .shell import NoAccounting, ask, reason_of

DEADLINE_S = 10.0
PROBE_S = 180
# A node's clock may differ by this much before heartbeats and leases are misread.
MOST_SKEW_S = 30.0
# A probe is wanted now, and nobody wants mail about it.
_NOT_PROBED = ("begin", "mail-type", "mail-user")


def is_here() -> bool:
    """Whether this machine has SLURM's commands."""
    return shutil.which("sbatch") is not None


def examine(config: Config, *, in_use: bool, probe: bool) -> list[Finding]:
    """Run the checks of a SLURM site.

    Args:
        config: the settings.
        in_use: whether runs go there; if not, a cluster that is away is no fault.
        probe: whether to run a job on a node and ask what it sees there.
    """
    if not is_here():
        fix = "Is this a login node of the cluster?"
        return [Finding("slurm", False, "sbatch not found", fix)] if in_use or probe else []
    try:
        site = configured(config, "slurm")
        found = findings(site, look_s=float(config.get("look_s")))
        if probe and found[0].ok:
            found += ask_node(config.workspace, site)
        elif found[0].ok:
            found.append(handover(read_reach(config.workspace, "slurm"), site))
    except VtjobsError as error:
        found = [Finding("slurm", False, str(error))]
    if not in_use and not probe and not found[0].ok:
        # Its commands are installed and nothing is meant to go there.
        return [Finding("slurm", True, "not in use (checks: VTJOBS_BACKEND=slurm vtjobs doctor)")]
    return found


def findings(site: Mapping[str, Any], *, look_s: float) -> list[Finding]:
    """Ask the controller and accounting what a grid has to live with.

    Args:
        site: the site's settings.
        look_s: how long commands that only read wait for an answer.
    """
    began = time.monotonic()
    try:
        config = cluster.settings(deadline_s=DEADLINE_S)
        took_s = time.monotonic() - began
        parts = partitions(deadline_s=DEADLINE_S)
    except SchedulerUnreachable as error:
        return [Finding("slurm", False, str(error), "Is SLURM_CONF right, and the controller up?")]
    version = config.get("SLURM_VERSION", "?")
    found: list[Finding] = [
        Finding("slurm", True, f"{version}, cluster {config.get('ClusterName', '?')}", "")
    ]
    found += [*late("slurm", took_s, look_s), _accounting(config)]
    found.append(_limits(site, parts))
    found += [*_partitions(site, parts), _preemption(config, parts)]
    kill_wait = config.get("KillWait", "?").split(" ")[0]
    found.append(Finding("slurm_kill_wait", True, f"KILL follows TERM after {kill_wait} s", ""))
    return found


def _accounting(config: Mapping[str, str]) -> Finding:
    if config.get("AccountingStorageType", "").endswith("none"):
        text = "none: how a job ended is known for MinJobAge only"
        return Finding("slurm_accounting", True, f"{text} ({config.get('MinJobAge', '?')})", "")
    try:
        ask(
            ["sacct", "--allocations", "--noheader", "--starttime=now-1minutes"],
            deadline_s=DEADLINE_S,
        )
    except NoAccounting:
        return Finding("slurm_accounting", True, "none", "")
    except SchedulerUnreachable as error:
        return Finding(
            "slurm_accounting",
            False,
            str(error),
            "Until it answers, states come from squeue and the journals only",
        )
    return Finding("slurm_accounting", True, "sacct answers", "")


def _limits(site: Mapping[str, Any], parts: Mapping[str, Partition]) -> Finding:
    size = limits.rules(deadline_s=DEADLINE_S).array_size
    default = next((name for name, part in parts.items() if part.is_default), "")
    partition = str(site.get("partition") or default).split(",")[0]
    left = limits.free(site, partition, mine=0, deadline_s=DEADLINE_S)
    least = min(left, key=lambda name: left[name], default=None)
    jobs = "no limit" if least is None else f"{left[least]:,} ({least})"
    text = f"job arrays of up to {size:,} elements, jobs that may be submitted now: {jobs}"
    return Finding("slurm_limits", True, text, "")


def _partitions(site: Mapping[str, Any], parts: Mapping[str, Partition]) -> list[Finding]:
    try:
        found = chosen(site, parts)
    except BadInput as error:
        fix = f"Set slurm.partition to one of: {', '.join(sorted(parts))}"
        return [Finding("slurm_partition", False, error.problems[0].message, fix)]
    return [
        Finding(
            "slurm_partition",
            part.is_up,
            _described(part),
            "" if part.is_up else "It is down",
        )
        for part in found
    ]


def _described(part: Partition) -> str:
    limit = format_duration(part.limit_s) if part.limit_s else "no limit"
    kinds = [
        f"{nodes.count} nodes of {nodes.all_gpus}{' ' if any(nodes.gpus) else ''}"
        f"{'/'.join(filter(None, nodes.gpus))} GPUs and {nodes.cpus} cores"
        for nodes in part.nodes
    ]
    return f"{part.name}: {', '.join([*kinds, limit])}{', whole nodes' * part.is_exclusive}"


def _preemption(config: Mapping[str, str], parts: Mapping[str, Partition]) -> Finding:
    mode, kind = config.get("PreemptMode", "OFF"), config.get("PreemptType", "")
    if kind.endswith("none") or mode == "OFF":
        return Finding("slurm_preemption", True, "off", "")
    graces = {part.facts["GraceTime"] for part in parts.values() if "GraceTime" in part.facts}
    grace = "/".join(sorted(graces)) or "unknown"
    return Finding(
        "slurm_preemption",
        True,
        f"{mode}, grace {grace} s; checkpoint_every limits the work that a preemption loses",
        "",
    )


def handover(seen: Reach | None, site: Mapping[str, Any]) -> Finding:
    """Say whether jobs can retry and hand on: what a node saw last of the controller."""
    name = "slurm_handover"
    if not site.get("handover", True):
        return Finding(name, True, "off: retries and successors are submitted by vtjobs supervise")
    if seen is None:
        text = "not known yet: the first job to start looks, or now: vtjobs doctor --probe"
        return Finding(name, True, text)
    if seen.answers:
        return Finding(name, True, f"a node reached the controller ({seen})")
    fix = "Set slurm.handover: false, and run: vtjobs supervise --install"
    return Finding(name, False, f"a node did not reach the controller ({seen})", fix)


def _probe_options(site: Mapping[str, Any]) -> list[str]:
    """Return what the probe asks for: what a run with one GPU would.

    Raises:
        BadInput: the settings name a partition that does not exist, or that could run nothing.
    """
    parts = chosen(site, partitions(deadline_s=DEADLINE_S))
    gpus = min(1, default_gpus(site, None, 1, parts))
    is_given = gives_memory(cluster.settings(deadline_s=DEADLINE_S))
    shape = Shape(backend="slurm", gpus=gpus)
    asked = request(shape, site, "none", parts, gives_memory=is_given)
    trial = Allocation(
        token="vtj-probe",
        created_at=0.0,
        shape=shape,
        lanes=1,
        tasks=(),
        data_root="",
        site={**site, "mem": asked.mem},
    )
    return [*generic_options(trial), *site_options(trial.site, without=_NOT_PROBED)]


def ask_node(place: Workspace, site: Mapping[str, Any]) -> list[Finding]:
    """Run the probe on one node, through srun, and judge what it saw."""
    workspace = place.root.resolve()
    began = time.time()
    try:
        done = subprocess.run(
            _probe_command(workspace, site),
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            stdin=subprocess.DEVNULL,
            env=clean_environment(),
        )
    except subprocess.TimeoutExpired:
        said = f"no node ran it within {PROBE_S} s"
        return [Finding("probe", False, said, "Try again when nodes are free")]
    try:
        seen = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = reason_of(done.stderr) or f"exit code {done.returncode}"
        fix = "vtjobs must be installed where the nodes see it; see slurm.python and setup"
        return [Finding("probe", False, said, fix)]
    reach = Reach(at=seen["time"], host=seen["host"], reason=seen["reach"])
    if place.identity.exists() and place.is_owned():
        note_reach(place, "slurm", reach)
    found = judge(seen, began=began, ended=time.time(), expected=_identity(workspace))
    return [*found, handover(reach, site)]


def _probe_command(workspace: Path, site: Mapping[str, Any]) -> list[str]:
    """Return the command that runs the probe on one node, as a job's script would start it."""
    setup = [f"module load {module}" for module in site.get("modules", ())] + list(
        site.get("setup", ())
    )
    python = [
        *site.get("container", ()),
        site.get("python") or sys.executable,
        "-P",
        "-m",
        "vtjobs.workers.tools.probe",
        "--backend=slurm",
    ]
    line = "; ".join([*setup, f"exec {shlex.join([*python, '--workspace', str(workspace)])}"])
    return [
        "srun",
        "--quiet",
        "--nodes=1",
        "--ntasks=1",
        "--time=5",
        "--chdir=/",
        "--job-name=vtj-probe",
        *_probe_options(site),
        *site.get("srun", ()),
        "bash",
        "-c",
        line,
    ]


def _identity(workspace: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(json.loads((workspace / "workspace.json").read_text())["id"])
    return None


def judge(
    seen: Mapping[str, Any], *, began: float, ended: float, expected: str | None
) -> list[Finding]:
    """Judge what a node saw.

    Args:
        seen: what workers/tools/probe.py printed.
        began: when the probe was started here.
        ended: when its answer was here.
        expected: the workspace's id as seen from here; None where there is no workspace yet.
    """
    shared = expected is not None and seen["workspace_id"] == expected and seen["writable"]
    text = "readable and writable from the node"
    if not shared:
        text = "not readable or not writable from the node"
    skew = max(0.0, began - seen["time"], seen["time"] - ended)
    found: list[Finding] = [
        Finding(
            "probe",
            True,
            f"{seen['host']}: {seen['cpus']} cores, {len(seen['gpus'])} GPU granted",
            "",
        )
    ]
    if expected is not None:
        fix = "" if shared else "Put VTJOBS_WORKSPACE on a file system that the nodes share"
        found.append(Finding("probe_workspace", shared, text, fix))
    found.append(
        Finding(
            "probe_clock",
            skew <= MOST_SKEW_S,
            f"{skew:.1f} s apart",
            "" if skew <= MOST_SKEW_S else "Fix NTP",
        )
    )
    return [*found, *_devices(seen)]


def _devices(seen: Mapping[str, Any]) -> list[Finding]:
    if not seen.get("torch"):
        return [
            Finding(
                "probe_torch",
                False,
                seen.get("error", "no torch"),
                "Install vtjobs where the nodes see it",
            )
        ]
    found: list[Finding] = [Finding("probe_torch", True, f"torch {seen['torch']}", "")]
    for device in seen["devices"]:
        ok = is_built_for(device["capability"], seen["architectures"])
        fix = "" if ok else remedy(device["capability"])
        found.append(
            Finding(
                "probe_gpu", ok, f"{device['name']}, compute capability {device['capability']}", fix
            )
        )
    if seen["devices"]:
        fix = "" if seen["nccl"] else "Install a CUDA build of torch"
        found.append(
            Finding(
                "probe_nccl",
                bool(seen["nccl"]),
                "NCCL " + ("available" if seen["nccl"] else "missing"),
                fix,
            )
        )
    elif seen["gpus"]:
        found.append(
            Finding(
                "probe_gpu",
                False,
                seen.get("error", "torch sees no GPU although one was granted"),
                "See nvidia-smi",
            )
        )
    return found

"""How an allocation becomes a job.

Its options, the script that starts the agents, and submitit that submits it.

Every option goes on the command line: SBATCH_* variables beat what stands in a script.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....jobs.atomic_files import is_shared, make_folder, write_new
from ....jobs.config.environment import job_environment, named_variables
from ....jobs.workspace.allocation import Allocation
from ....jobs.workspace.paths import Workspace
from .request import MEMORY

# A submission that hangs longer than this is given up, and its outcome is unclear. Less than a
# submitter's own time (dispatch.LAUNCH_S), after which another one takes over.
SUBMIT_DEADLINE_S = 45


def options(
    allocation: Allocation, workspace: Workspace, *, places: int = 1, token: str | None = None
) -> list[str]:
    """Return sbatch's options for an allocation.

    Args:
        allocation: what is submitted, with the site's settings in it.
        workspace: where the logs go.
        places: elements of its array.
        token: the name of the job, by default the allocation's.
    """
    site = allocation.site
    token = token or allocation.token
    index = "%a" if places > 1 else "0"
    log = str(workspace.allocations.resolve()).replace("%", "%%")
    found = [
        f"--job-name={token}",
        f"--output={log}/{token}-{index}-0.log",
        "--open-mode=append",
        "--chdir=/",
        "--ntasks-per-node=1",
        f"--signal=USR2@{allocation.shape.lead_s}",
        "--no-requeue",
        "--kill-on-invalid-dep=yes",
    ]
    if places > 1:
        most = site.get("array_parallelism")
        found.append(f"--array=0-{places - 1}" + (f"%{most}" if most else ""))
    return found + asked(allocation)


def asked(allocation: Allocation) -> list[str]:
    """Return the options that say what one job of an allocation asks for."""
    shape, site = allocation.shape, allocation.site
    found = [f"--nodes={shape.nodes}", f"--cpus-per-task={site['cpus']}"]
    found += generic_options(allocation)
    if shape.walltime_s:
        found.append(f"--time={-(-shape.walltime_s // 60)}")
    return found + site_options(site, avoid=allocation.exclude)


def generic_options(allocation: Allocation) -> list[str]:
    """Return the options for GPUs and other generic resources, in the site's way to ask."""
    shape, site = allocation.shape, allocation.site
    option, gres = site.get("gpu_option", "gpus-per-node"), list(site.get("gres", ()))
    kind = f"{shape.gpu}:" if shape.gpu else ""
    gpus = f"{kind}{shape.gpus_of(allocation.lanes)}"
    found = []
    if shape.gpus and option == "gres":
        gres = [f"gpu:{gpus}", *gres]
    elif shape.gpus:
        found.append(f"--{option}={gpus}")
    return [*found, f"--gres={','.join(gres)}"] if gres else found


def site_options(
    site: Mapping[str, Any], *, avoid: Sequence[str] = (), without: Collection[str] = ()
) -> list[str]:
    """Return the options that the site's settings ask for, of sbatch and of srun alike.

    Args:
        site: the settings.
        avoid: more nodes to avoid.
        without: names of extra options to leave out.
    """
    found = [
        f"--{name}={site[name]}"
        for name in ("partition", "account", "qos", "reservation", "constraint")
        if site.get(name)
    ]
    if nodes := [*filter(None, [site.get("exclude")]), *avoid]:
        found.append(f"--exclude={','.join(nodes)}")
    if site.get("exclusive"):
        found.append("--exclusive")
    extra = {name: value for name, value in site.get("extra", {}).items() if value is not False}
    extra = {name: value for name, value in extra.items() if name not in without}
    if site.get("mem") or (site.get("exclusive") and not extra.keys() & MEMORY):
        # 0: all the memory of a node that is ours alone.
        found.append(f"--mem={site.get('mem') or 0}")
    for name, value in sorted(extra.items()):
        found.append(f"--{name}" if value is True else f"--{name}={value}")
    return found


def script(allocation: Allocation, workspace: Workspace) -> str:
    """Return the job script; its one argument is the allocation's token.

    The agent is the last command and replaces the shell: the script's own exit code would hide the
    agent's.
    """
    site = allocation.site
    setup = [f"module load {module}" for module in site.get("modules", ())] + list(
        site.get("setup", ())
    )
    command = [*site.get("container", ()), site.get("python") or sys.executable]
    command += ["-P", "-m", "vtjobs.workers.agent", "--workspace", str(workspace.root.resolve())]
    # 22.05 and later do not hand --cpus-per-task on to srun.
    start = 'exec srun --unbuffered --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK"'
    if site.get("srun"):
        start = f"{start} {shlex.join(site['srun'])}"
    # SLURM has made the log as the submitter's umask says.
    share = ["chmod 660 /proc/self/fd/1"] if is_shared(workspace.allocations) else []
    return "\n".join([*share, *setup, f'{start} {shlex.join(command)} --token "$1"'])


def stored_script(allocation: Allocation, workspace: Workspace) -> Path:
    """Write the script where successors find it, once per content; return its path."""
    text = "#!/bin/bash\n" + script(allocation, workspace) + "\n"
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = make_folder(workspace.root / "slurm") / f"agent-{name}.sh"
    write_new(path, text.encode())
    return path.resolve()


def successor(allocation: Allocation, workspace: Workspace) -> tuple[str, ...]:
    """Return the command by which a node hands on its unfinished runs.

    After its own job, without an array.
    """
    path = str(stored_script(allocation, workspace))
    return (
        "sbatch",
        *options(allocation, workspace, token="{token}"),
        "--dependency=afterany:{job}",
        path,
        "{token}",
    )


def withheld(allocation: Allocation) -> list[str]:
    """Return the variables of this process that a job does not get."""
    return sorted(os.environ.keys() - job_environment(named_variables(allocation.site)).keys())


def submission(allocation: Allocation, workspace: Workspace) -> list[str]:
    """Return sbatch's options for the first submission of an allocation."""
    found = options(allocation, workspace, places=len(allocation.tasks))
    # A parent that ends resumable must not cancel its child: the child's agent looks at the
    # parent itself.
    wait = [f"afterany:{':'.join(allocation.after)}"] if allocation.after else []
    if all(task.attempt == 1 for task in allocation.all_tasks):
        # Later ones come after the jobs have ended, and SLURM may have forgotten them.
        wait += allocation.site.get("dependency", ())
    return [*found, f"--dependency={','.join(wait)}"] if wait else found


def transport(
    folder: Path, arguments: Sequence[str], token: str, *, withheld: Sequence[str]
) -> "object":
    """Return submitit's executor with our own command line, script and job name.

    submitit writes the script, calls sbatch and reads the job's id. Nothing is pickled: the agent
    reads the allocation's file. Its states, results and time-outs are not used.

    Args:
        folder: where submitit writes.
        arguments: of sbatch.
        token: the script's argument.
        withheld: variables that sbatch does not see, so that the job does not inherit them.
    """
    from submitit.slurm.slurm import SlurmExecutor

    class AgentExecutor(SlurmExecutor):
        def _make_submission_file_text(self, command: str, uid: str) -> str:
            # submitit's own has directives, which hold for what the command line leaves out: a time
            # limit of 5 minutes.
            return f"#!/bin/bash\n{command}\n"

        def _make_submission_command(self, submission_file_path: Path) -> list[str]:
            clean = [part for name in withheld for part in ("-u", name)]
            deadline = ["timeout", "--signal=KILL", str(SUBMIT_DEADLINE_S)]
            return [
                *deadline,
                "env",
                *clean,
                "sbatch",
                *arguments,
                str(submission_file_path),
                token,
            ]

    return AgentExecutor(folder=folder, max_num_timeout=0)

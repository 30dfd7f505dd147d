"""From an allocation to sbatch's command line and the job's script."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.base import SubmitOutcome
from vtjobs.orchestrator.backends.slurm import job
from vtjobs.orchestrator.backends.slurm.submission import submit

from ....support.scheduler import Commands


def allocation(
    *, places: int = 1, site: Mapping[str, Any] | None = None, **fields: Any
) -> Allocation:
    shape = Shape(backend="slurm", **fields.pop("shape", {}))
    tasks = tuple(
        (Task(run_id=f"{index:016d}", attempt=1, grid_id="g"),) for index in range(places)
    )
    plain = {
        "token": "vtj-1",
        "created_at": 1.0,
        "lanes": 1,
        "data_root": "/data",
        "site": {"cpus": 4, **(site or {})},
    }
    return Allocation(shape=shape, tasks=tasks, **{**plain, **fields})


def named(options: list[str]) -> dict[str, str]:
    """Return options by name; each is given once."""
    found = dict(option.removeprefix("--").partition("=")[::2] for option in options)
    assert len(found) == len(options), "an option is given twice"
    return found


def test_the_options_of_one_job(workspace: Workspace) -> None:
    found = named(job.submission(allocation(shape={"lead_s": 90}), workspace))
    assert found == {
        "job-name": "vtj-1",
        "output": f"{workspace.allocations}/vtj-1-0-0.log",
        "open-mode": "append",
        "chdir": "/",
        "nodes": "1",
        "ntasks-per-node": "1",
        "cpus-per-task": "4",
        "signal": "USR2@90",
        "no-requeue": "",
        "kill-on-invalid-dep": "yes",
    }


@pytest.mark.paper("OR-06")
def test_a_shape_asks_for_gpus_nodes_and_whole_minutes(workspace: Workspace) -> None:
    shape = {"gpus": 4, "gpu": "v100", "nodes": 2, "walltime_s": 3601}
    found = named(job.submission(allocation(shape=shape), workspace))
    assert (found["gpus-per-node"], found["nodes"], found["time"]) == ("v100:4", "2", "61")


def test_runs_side_by_side_ask_for_the_gpus_of_all(workspace: Workspace) -> None:
    found = named(job.submission(allocation(shape={"gpus": 2}, lanes=4), workspace))
    assert found["gpus-per-node"] == "8"


@pytest.mark.parametrize(
    ("site", "asked"),
    [
        ({"gpu_option": "gres"}, {"gres": "gpu:v100:2"}),
        ({"gpu_option": "gpus"}, {"gpus": "v100:2"}),
        ({"gres": ["nvme:1"]}, {"gpus-per-node": "v100:2", "gres": "nvme:1"}),
        ({"gpu_option": "gres", "gres": ["nvme:1"]}, {"gres": "gpu:v100:2,nvme:1"}),
    ],
)
def test_gpus_are_asked_for_in_the_sites_way(
    workspace: Workspace, site: dict[str, Any], asked: dict[str, str]
) -> None:
    given = allocation(shape={"gpus": 2, "gpu": "v100"}, site=site)
    found = named(job.submission(given, workspace))
    assert {name: found[name] for name in found if name.startswith(("gpus", "gres"))} == asked


def test_first_attempts_wait_for_jobs_of_others_and_later_ones_do_not(
    workspace: Workspace,
) -> None:
    given = allocation(site={"dependency": ["afterok:12", "after:13+5"]}, after=("34",))
    found = named(job.submission(given, workspace))
    assert found["dependency"] == "afterany:34,afterok:12,after:13+5"
    again = changed(given, tasks=((Task(run_id="0" * 16, attempt=2, grid_id="g"),),))
    assert named(job.submission(again, workspace))["dependency"] == "afterany:34"
    assert "--dependency=afterany:{job}" in job.successor(given, workspace)


def test_a_container_of_pyxis_is_an_option_of_srun(workspace: Workspace) -> None:
    options = ["--container-image=nvcr.io#nvidia/pytorch:24.05-py3", "--no-container-mount-home"]
    last = job.script(allocation(site={"srun": options}), workspace).splitlines()[-1]
    words = shlex.split(last)
    assert set(options) < set(words[: words.index("vtjobs.workers.agent")])


@pytest.mark.parametrize(("most", "array"), [(None, "0-9"), (3, "0-9%3")])
def test_several_places_are_one_array_with_a_log_each(
    workspace: Workspace, most: int | None, array: str
) -> None:
    found = named(
        job.submission(allocation(places=10, site={"array_parallelism": most}), workspace)
    )
    assert found["array"] == array
    assert found["output"].endswith("/vtj-1-%a-0.log")


def test_the_sites_settings_are_options_and_nothing_is_asked_for_that_it_does_not_name(
    workspace: Workspace,
) -> None:
    site = {
        "partition": "a,b",
        "account": "lab",
        "qos": "high",
        "reservation": "r",
        "constraint": "v100|a100",
    }
    found = named(job.submission(allocation(site=site), workspace))
    assert {name: found[name] for name in site} == site
    assert not site.keys() & named(job.submission(allocation(), workspace)).keys()


def test_extra_options_are_given_and_one_that_is_switched_off_is_not(workspace: Workspace) -> None:
    extra = {
        "licenses": "m:1",
        "nice": -5,
        "hint": "nomultithread",
        "network": True,
        "profile": False,
    }
    found = named(job.submission(allocation(site={"extra": extra}), workspace))
    assert (found["licenses"], found["nice"], found["network"]) == ("m:1", "-5", "")
    assert "profile" not in found


@pytest.mark.parametrize(
    ("site", "mem"),
    [
        ({}, None),
        ({"mem": "20G"}, "20G"),
        ({"exclusive": True}, "0"),
        ({"exclusive": True, "mem": "20G"}, "20G"),
        ({"exclusive": True, "extra": {"mem-per-gpu": "8G"}}, None),
    ],
)
def test_memory_is_asked_for_in_one_way(
    workspace: Workspace, site: dict[str, Any], mem: str | None
) -> None:
    found = named(job.submission(allocation(site=site), workspace))
    assert found.get("mem") == mem
    assert ("exclusive" in found) == bool(site.get("exclusive"))


def test_the_nodes_to_avoid_are_the_sites_and_the_runs(workspace: Workspace) -> None:
    assert "exclude" not in named(job.submission(allocation(), workspace))
    found = named(
        job.submission(
            allocation(site={"exclude": "gpu[3,7-9]"}, exclude=("gpu1", "gpu2")), workspace
        )
    )
    assert found["exclude"] == "gpu[3,7-9],gpu1,gpu2"
    assert named(job.submission(allocation(exclude=("gpu1",)), workspace))["exclude"] == "gpu1"


def test_a_later_stage_starts_whatever_became_of_its_parent(workspace: Workspace) -> None:
    found = named(job.submission(allocation(after=("34", "35")), workspace))
    assert found["dependency"] == "afterany:34:35"


def test_a_successor_is_one_job_after_its_own_under_a_name_of_its_own(workspace: Workspace) -> None:
    given = allocation(
        places=5,
        after=("34",),
        shape={"gpus": 1},
        site={"array_parallelism": 2, "partition": "gpu"},
    )
    word, *options, path, token = job.successor(given, workspace)
    found = named(options)
    assert (word, token, found["job-name"], found["dependency"]) == (
        "sbatch",
        "{token}",
        "{token}",
        "afterany:{job}",
    )
    assert found["output"].endswith("/{token}-0-0.log")
    assert "array" not in found
    assert (found["partition"], found["gpus-per-node"]) == ("gpu", "1")
    assert Path(path).read_text() == f"#!/bin/bash\n{job.script(given, workspace)}\n"
    assert Path(path).is_absolute()


def test_the_script_that_successors_use_is_stored_once_per_content(workspace: Workspace) -> None:
    first = job.stored_script(allocation(), workspace)
    assert job.stored_script(allocation(token="vtj-2", places=4), workspace) == first
    assert job.stored_script(allocation(site={"modules": ["cuda/12"]}), workspace) != first
    assert len(list((workspace.root / "slurm").glob("agent-*.sh"))) == 2


def test_the_script_ends_in_the_agent_and_nothing_hides_its_exit_code(workspace: Workspace) -> None:
    site = {
        "modules": ["cuda/12.1", "gcc"],
        "setup": ["source /opt/env.sh"],
        "python": "/opt/py/bin/python",
    }
    first, second, third, last = job.script(allocation(site=site), workspace).splitlines()
    assert (first, second, third) == (
        "module load cuda/12.1",
        "module load gcc",
        "source /opt/env.sh",
    )
    assert last.startswith("exec srun ")
    assert "/opt/py/bin/python -P -m vtjobs.workers.agent" in last


# The script as bash and sbatch see it -------------------------------------------------------------

HOSTILE = [
    "with space",
    'it\'s "quoted"',
    "$(touch owned)`touch owned`;touch owned&",
    "100%jobs %t %A",
    "back\\slash",
    "two\nlines; touch owned",
    "#SBATCH --uid=0",
    "*?[a]{b,c}~!",
    "-rf",
    "naïve λ",
]


def run_by_bash(script: Path, commands: Commands, folder: Path) -> list[str]:
    """Run a job's script as a node does; return what the agent's launcher was called with."""
    commands.answers("srun", "printf '%s\\0' \"$@\"; exit 71")
    folder.mkdir()
    environment = {"PATH": commands.path, "SLURM_CPUS_PER_TASK": "4"}
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).stderr == b""
    done = subprocess.run(
        ["bash", str(script), "vtj-1"], cwd=folder, env=environment, capture_output=True
    )
    assert done.returncode == 71, "the job's exit code is the agent's"
    assert done.stderr == b""
    assert list(folder.iterdir()) == [], "the script did something else"
    return done.stdout.decode().split("\0")[:-1]


def agent(root: Path, *before: str) -> list[str]:
    words = [
        *before,
        sys.executable,
        "-P",
        "-m",
        "vtjobs.workers.agent",
        "--workspace",
        str(root),
        "--token",
        "vtj-1",
    ]
    return ["--unbuffered", "--kill-on-bad-exit=1", "--cpus-per-task=4", *words]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_workspace_of_any_name_reaches_the_agent_as_it_is(
    commands: Commands, tmp_path: Path, name: str
) -> None:
    workspace = Workspace(tmp_path / name).create()
    script = job.stored_script(allocation(), workspace)
    assert run_by_bash(script, commands, tmp_path / "empty") == agent(workspace.root)


def test_the_words_of_a_container_stay_the_words_that_they_were(
    commands: Commands, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path / "runs").create()
    container = ["apptainer", "exec", "--nv", "--bind=/data:/data", "/img/x@1.sif"]
    script = job.stored_script(allocation(site={"container": container}), workspace)
    assert run_by_bash(script, commands, tmp_path / "empty") == agent(workspace.root, *container)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_submitted_is_our_options_and_our_script_alone(
    commands: Commands, tmp_path: Path, name: str
) -> None:
    commands.answers(
        "sbatch",
        f"for word; do printf '%s\\0' \"$word\"; done > {tmp_path}/argv\n"
        f'for word; do script=$last; last=$word; done; cat "$script" > {tmp_path}/script\n'
        "echo Submitted batch job 77",
    )
    commands.prints("srun", "")
    workspace = Workspace(tmp_path / name).create()
    given = allocation(places=2, shape={"gpus": 1})
    before = sorted(path.name for path in tmp_path.iterdir())
    done = submit(given, workspace)
    assert (done.outcome, done.job_id) == (SubmitOutcome.ACCEPTED, "77")
    *options, _, token = (tmp_path / "argv").read_bytes().decode().split("\0")[:-1]
    assert (options, token) == (job.submission(given, workspace), "vtj-1")
    # A directive in the script would hold for whatever the command line leaves out, such as the
    # time.
    assert (tmp_path / "script").read_text() == f"#!/bin/bash\n{job.script(given, workspace)}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "argv", "script"])
    assert run_by_bash(tmp_path / "script", commands, tmp_path / "empty") == agent(workspace.root)


def test_a_group_that_shares_the_workspace_shares_the_log_before_anything_can_fail(
    commands: Commands, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path / "runs").create()
    assert "chmod" not in job.script(allocation(), workspace)
    workspace.allocations.chmod(0o2770)
    script, log = (
        job.stored_script(allocation(site={"setup": ["false"]}), workspace),
        tmp_path / "log",
    )
    commands.prints("srun", "")
    with open(os.open(log, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as stream:
        subprocess.run(["bash", "-e", str(script), "vtj-1"], stdout=stream, check=False)
    assert log.stat().st_mode & 0o777 == 0o660


def test_a_percent_sign_of_the_path_is_no_pattern_of_the_log(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "100%a").create()
    found = named(job.submission(allocation(places=2), workspace))
    assert found["output"] == f"{tmp_path}/100%%a/allocations/vtj-1-%a-0.log"


def test_a_submission_inherits_no_option_and_no_secret(
    commands: Commands, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "theirs")
    monkeypatch.setenv("VTJOBS_LEDGER", "postgresql://me:sesame@host/name")
    monkeypatch.setenv("SLURM_CONF", "/etc/some/slurm.conf")
    commands.prints("sbatch", "Submitted batch job 77")
    commands.prints("srun", "")
    submit(allocation(), workspace)
    had = commands.environment_of("sbatch")
    assert "SBATCH_PARTITION" not in had and "VTJOBS_LEDGER" not in had
    assert had["SLURM_CONF"] == "/etc/some/slurm.conf"


def test_what_a_successor_is_submitted_with_survives_the_allocations_file(
    workspace: Workspace,
) -> None:
    argv = job.successor(allocation(), workspace)
    stored = json.loads(json.dumps(allocation(argv=argv).to_dict()))
    assert Allocation.from_dict(stored).argv == argv

"""From a grid to Ray jobs: what is submitted, once and no more, and what is refused before."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from vtjobs.orchestrator.backends.ray.api import Api
from vtjobs.orchestrator.backends.ray.submission import selector

from ..support.cli import Cli
from ..support.grids import ENDLESS
from ..support.ray import RayCluster
from ..support.ray_user import between, ray_grid, secrets_in, states, submit, wait_for
from ..support.site import agents, attempts, family, gone

pytestmark = pytest.mark.xdist_group("ray")
# What no node has: with nodes to come, such a job waits.
WAITS = {"ray": "autoscale: true, resources: {rare: 1}"}
LARGE = {"resources": "gpus_per_node: 2", "train": "virtual_ranks: 2, lr: 0.001"}


# What is submitted --------------------------------------------------------------------------------


def test_a_grid_is_dealt_out_to_as_many_agents_as_can_work_and_completes(
    user: Cli, ray: RayCluster
) -> None:
    before = set(ray.allocations())
    assert (
        "4 completed"
        in user("submit", user.write("grid.yaml", ray_grid(seeds="4")), "--wait").stderr
    )
    # Two nodes with a GPU each: two agents have two runs each.
    jobs = [job for name, job in ray.allocations().items() if name not in before]
    assert [job["metadata"]["vtjobs_runs"] for job in jobs] == ["2", "2"]
    assert {run["attempts"] for run in user.json("runs")} == {1}
    wait_for(lambda: {ray.jobs()[job["submission_id"]]["status"] for job in jobs} == {"SUCCEEDED"})
    logs = sorted((user.workspace / "allocations").glob("*.log"))
    assert len(logs) == 2 and all("completed" in log.read_text() for log in logs)
    assert not secrets_in(ray)
    written = [path for path in user.workspace.rglob("*") if path.is_file()]
    assert not [path for path in written if ray.token.encode() in path.read_bytes()]


def test_a_token_in_a_file_is_neither_on_a_command_line_nor_known_to_ranks(
    user: Cli, ray: RayCluster
) -> None:
    (run,) = submit(user, ray_grid(epochs=ENDLESS))
    run.trains(1)
    (agent,) = agents(user)
    assert f"RAY_AUTH_TOKEN_PATH={ray.folder}/token" in environment_of(agent)
    for pid in family(agent):
        assert ray.token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert not [word for word in environment_of(pid) if ray.token in word]
    ranks = [pid for pid in family(agent) if pid != agent]
    assert not [word for pid in ranks for word in environment_of(pid) if "RAY_AUTH_TOKEN" in word]


def environment_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


@pytest.mark.long
def test_a_second_grid_of_another_shape_gets_its_turn_before_the_first_one_has_ended(
    user: Cli, ray: RayCluster
) -> None:
    # Of the first, an agent is on each of the two nodes with runs for a long time; a run of the
    # second needs both.
    first = ray_grid(name="first", seeds="16", epochs=30, slow=True)
    user.ok("submit", user.write("first.yaml", first))
    wait_for(lambda: len(agents(user)) == 2)
    wide = ray_grid(name="second", resources="nodes: 2", train="virtual_ranks: 2, lr: 0.001")
    user.ok("submit", user.write("second.yaml", wide))
    wait_for(lambda: [run["state"] for run in user.json("runs", "second")] == ["completed"])
    left = {run["state"] for run in user.json("runs", "first")}
    assert left - {"completed"}, "the first one had ended by itself"
    # What gave way is back without any command.
    wait_for(lambda: len(agents(user)) == 2)


def test_submitting_twice_submits_once(user: Cli, ray: RayCluster) -> None:
    submit(user, ray_grid(seeds="2", **WAITS))
    jobs = set(ray.allocations())
    assert "2 already queued" in user("submit", "grid.yaml").stderr
    assert set(ray.allocations()) == jobs
    assert {run["attempts"] for run in user.json("runs")} == {1}


def test_a_submission_whose_reply_was_lost_is_found_again(user: Cli, ray: RayCluster) -> None:
    before = set(ray.allocations())
    user.write("grid.yaml", ray_grid(**WAITS))
    with between(ray) as line:
        line.loses_replies_to_submissions = True
        done = user("submit", "grid.yaml", RAY_ADDRESS=line.address)
        assert done.returncode == 5, done.stderr
        assert "unreachable since" in done.stderr
        assert line.lost == 1
        assert set(states(user)) <= {"queued", "pending"}
        line.loses_replies_to_submissions = False
        wait_for(lambda: user.json("runs", RAY_ADDRESS=line.address)[0]["state"] == "queued")
        user.ok("submit", "grid.yaml", RAY_ADDRESS=line.address)
        assert len(set(ray.allocations()) - before) == 1
        (run,) = user.json("runs", RAY_ADDRESS=line.address)
        assert run["attempts"] == 1
        user.ok("cancel", "all", RAY_ADDRESS=line.address)


def test_a_cluster_that_is_away_holds_back_no_grid_of_another_one(
    user: Cli, ray: RayCluster
) -> None:
    with between(ray) as line:
        there = line.address
        user.write("there.yaml", ray_grid(name="there", ray=f'address: "{there}", {WAITS["ray"]}'))
        user.ok("submit", "there.yaml")
    here = f'address: "{ray.env["RAY_ADDRESS"]}"'
    done = user(
        "submit", user.write("here.yaml", ray_grid(name="here", epochs=2, ray=here)), "--wait"
    )
    assert "1 completed" in done.stderr
    (away,) = json.loads(user("status", "--json").stdout)["unreachable"]
    assert (away["backend"], away["cluster"]) == ("ray", there)
    checks = json.loads(user("doctor", "--json", VTJOBS_BACKEND="ray").stdout)["checks"]
    found = [check["ok"] for check in checks if check["name"] == "ray"]
    assert sorted(found) == [False, True]


def test_what_no_node_has_is_refused_and_waits_where_nodes_are_added(
    user: Cli, ray: RayCluster
) -> None:
    done = user("submit", user.write("grid.yaml", ray_grid(**LARGE)))
    assert done.returncode == 2
    assert (
        "a run needs 2 GPUs and" in done.stderr
        and "the largest node of this cluster has 1 GPUs" in done.stderr
    )
    assert "backend.ray.autoscale: true" in done.stderr
    assert not user.workspace.exists()
    (run,) = submit(user, ray_grid(**LARGE, ray="autoscale: true"))
    wait_for(
        lambda: "waits for the cluster to add nodes" in user.json("why", run.run_id)["sentence"]
    )
    assert user.json("why", run.run_id)["verdict"] == "wait"
    assert states(user) == {"queued": 1}


def test_a_request_that_lost_its_nodes_can_never_start_and_says_why(
    user: Cli, ray: RayCluster
) -> None:
    (run,) = submit(user, ray_grid(**WAITS))
    (path,) = (user.workspace / "allocations").glob("*.json")
    # As it is after nodes of a cluster that adds none have gone for good.
    path.write_text(path.read_text().replace('"autoscale": true', '"autoscale": false'))
    answer = wait_for(
        lambda: (found := user.json("why", run.run_id))["verdict"] == "never" and found
    )
    assert "no node has the resource 'rare'" in answer["sentence"]
    wait_for(lambda: "can never start" in user("status").stderr)


def test_ray_keeps_a_job_off_the_nodes_that_it_is_to_avoid(user: Cli, ray: RayCluster) -> None:
    rows = ray.cluster.ask("/api/v0/nodes?limit=1000")["data"]["result"]["result"]
    alive = [row["node_id"] for row in rows if row["state"] == "ALIVE"]
    for bad in alive:
        name = f"avoid-{bad[:8]}"
        body = {"submission_id": name, "entrypoint": "true", "entrypoint_num_cpus": 1}
        api = Api(ray.cluster.address)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_AUTH_TOKEN", ray.token)
            api.ask(
                "/api/jobs/",
                body={**body, "entrypoint_label_selector": selector([bad])},
                deadline_s=15,
            )
        wait_for(lambda name=name: ray.jobs()[name]["status"] == "SUCCEEDED")
        assert ray.jobs()[name]["driver_node_id"] in set(alive) - {bad}


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_agent_inherits_no_key_of_whoever_started_the_cluster_but_what_the_grid_names(
    user: Cli, ray: RayCluster, nodes: int
) -> None:
    # pytest's own variable was there when the cluster was started.
    (keeper, *_) = ray.daemons(1)
    assert "PYTEST_" in Path(f"/proc/{keeper}/environ").read_text()
    text = ray_grid(
        epochs=ENDLESS,
        resources=f"nodes: {nodes}",
        train=f"virtual_ranks: {nodes}",
        ray="environment: [WANDB_API_KEY, PYTHONHASHSEED]",
    )
    user.ok("submit", user.write("grid.yaml", text), WANDB_API_KEY="named", HF_TOKEN="canary")
    pids = wait_for(lambda: len(found := agents(user)) == nodes and found)
    for pid in pids:
        words = Path(f"/proc/{pid}/environ").read_text().split("\0")
        assert "WANDB_API_KEY=named" in words
        assert not [word for word in words if word.startswith(("HF_TOKEN=", "PYTEST_"))]


# What is refused ----------------------------------------------------------------------------------


def test_without_an_address_the_user_is_told_what_to_set(user: Cli) -> None:
    done = user("submit", user.write("grid.yaml", ray_grid()), RAY_ADDRESS="")
    assert done.returncode == 2
    assert "no Ray cluster address is set. Set RAY_ADDRESS" in done.stderr
    done = user("submit", "grid.yaml", RAY_ADDRESS="ray://head:10001")
    assert done.returncode == 2
    assert "RAY_ADDRESS" in done.stderr and "expected the address of Ray's dashboard" in done.stderr
    assert not user.workspace.exists()


def test_a_cluster_that_takes_code_from_anybody_is_refused(user: Cli, ray: RayCluster) -> None:
    with between(ray) as line:
        line.adds_token = True
        done = user("submit", user.write("grid.yaml", ray_grid()), RAY_ADDRESS=line.address)
    assert done.returncode == 2
    assert "answers without a token" in done.stderr and "RAY_AUTH_MODE=token" in done.stderr
    assert not user.workspace.exists()


def test_a_token_goes_to_another_host_by_https_alone_unless_the_user_says_otherwise(
    user: Cli,
) -> None:
    user.write("grid.yaml", ray_grid())
    done = user("submit", "grid.yaml", RAY_ADDRESS="http://192.0.2.77:8265")
    assert done.returncode == 2
    assert "unencrypted" in done.stderr
    allowed = user(
        "submit",
        user.write("grid.yaml", ray_grid(ray="insecure: true")),
        RAY_ADDRESS="http://head.invalid:8265",
    )
    assert allowed.returncode == 5, allowed.stderr


def test_a_wrong_token_is_said_and_nothing_changes(user: Cli, ray: RayCluster) -> None:
    submit(user, ray_grid(**WAITS))
    wrong = {"RAY_AUTH_TOKEN": "0" * 64}
    done = wait_for(lambda: (found := user("status", **wrong)).returncode == 5 and found)
    assert "authentication failed (40" in done.stderr and "RAY_AUTH_TOKEN_PATH" in done.stderr
    assert user("submit", user.write("other.yaml", ray_grid(name="other")), **wrong).returncode == 5
    assert states(user) == {"queued": 1}


def test_a_cluster_whose_nodes_do_not_see_the_workspace_is_refused(
    user: Cli, tmp_path: Path
) -> None:
    user.write("grid.yaml", ray_grid())
    # A folder that only this command sees, as a login node's own disk is.
    inside = (
        f'mount -t tmpfs none "{tmp_path}/home" && cd "{tmp_path}/home" && printf %s "$GRID" >'
        ' grid.yaml && exec "$@"'
    )
    command = ["unshare", "--mount", "sh", "-c", inside, "sh", *vtjobs("submit", "grid.yaml")]
    env = {**user.environment(), "GRID": ray_grid()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "2 of the cluster's 2 nodes" in done.stderr
    assert (
        f"cannot write the workspace {tmp_path}/home/runs" in done.stderr
        and "VTJOBS_WORKSPACE" in done.stderr
    )


def vtjobs(*words: str) -> list[str]:
    return [sys.executable, "-m", "vtjobs.cli", *words]


def test_nodes_without_vtjobs_are_refused_with_what_to_set(user: Cli) -> None:
    done = user("submit", user.write("grid.yaml", ray_grid(ray="python: /usr/bin/false")))
    assert done.returncode == 2, done.stderr
    assert (
        "vtjobs cannot run on this cluster" in done.stderr and "backend.ray.python" in done.stderr
    )
    assert not user.workspace.exists()


def test_versions_that_differ_are_named_before_anything_is_submitted(
    user: Cli, ray: RayCluster, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import ray\n\nray.__version__ = '2.40.0'\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={other} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    before = set(ray.allocations())
    done = user("submit", user.write("grid.yaml", ray_grid(ray=f"python: {python}")))
    assert done.returncode == 2, done.stderr
    theirs = f"Python {platform.python_version()}"
    assert f"this cluster runs Ray {version('ray')} on {theirs}" in done.stderr
    assert f"has Ray 2.40.0 on {theirs}" in done.stderr and "backend.ray.python" in done.stderr
    assert set(ray.allocations()) == before and not user.workspace.exists()


HOSTILE = {
    "address": '"http://127.0.0.1:8265/;id"',
    "setup": '["echo\\nid"]',
    "python": '"python;id"',
    "resources": '{"a b": 1}',
    "cpus_per_gpu": "-1",
    "autoscale": '"yes; id"',
}


def test_a_hostile_setting_is_refused_before_anything_is_written(user: Cli) -> None:
    settings = ", ".join(f"{key}: {value}" for key, value in HOSTILE.items())
    done = user("submit", user.write("grid.yaml", ray_grid(ray=settings)))
    assert done.returncode == 2, done.stderr
    assert [key for key in HOSTILE if f"ray.{key}" not in done.stderr] == []
    assert not user.workspace.exists()


# Cancelling ---------------------------------------------------------------------------------------


def test_a_queued_run_that_is_cancelled_leaves_rays_queue(user: Cli, ray: RayCluster) -> None:
    first, second = submit(user, ray_grid(seeds="2", **WAITS))
    mine = {attempts(run.show())[0]["token"]: run for run in (first, second)}
    assert {ray.jobs()[token]["status"] for token in mine} == {"PENDING"}
    user.ok("cancel", first.run_id)
    wait_for(lambda: states(user) == {"cancelled": 1, "queued": 1})
    status = {run.run_id: ray.jobs()[token]["status"] for token, run in mine.items()}
    assert status == {first.run_id: "FAILED", second.run_id: "PENDING"}


def test_a_running_run_that_is_cancelled_leaves_no_process_behind(
    user: Cli, ray: RayCluster
) -> None:
    (run,) = submit(user, ray_grid(epochs=ENDLESS))
    run.trains(1)
    (agent,) = agents(user)
    processes = family(agent)
    user.ok("cancel", run.run_id)
    wait_for(lambda: gone(processes))
    wait_for(lambda: states(user) == {"cancelled": 1})
    token = str(attempts(run.show())[0]["token"])
    # Its agent has left by itself.
    wait_for(lambda: ray.jobs()[token]["status"] == "SUCCEEDED")
    assert run.ends(1).state == "cancelled"


def test_a_job_that_somebody_stops_in_ray_is_cancelled_and_stays_so(
    user: Cli, ray: RayCluster
) -> None:
    (run,) = submit(user, ray_grid(epochs=ENDLESS, extra="checkpoint_every: 1s"))
    run.trains(1, epochs=3)
    processes = [each for pid in agents(user) for each in family(pid)]
    done = ray.run("ray", "job", "stop", "--no-wait", str(attempts(run.show())[0]["token"]))
    assert done.returncode == 0, done.stderr
    wait_for(lambda: states(user) == {"cancelled": 1})
    assert gone(processes)
    assert len(attempts(run.show())) == 1
    assert [event["source"] for event in run.show()["history"]][-1] == "ray"


# Doctor -------------------------------------------------------------------------------------------


def test_doctor_says_what_the_cluster_is(user: Cli, ray: RayCluster) -> None:
    found = {
        check["name"]: check
        for check in user.json("doctor", "--probe", VTJOBS_BACKEND="ray")["checks"]
    }
    assert found["ray"]["ok"] and found["ray_token"]["ok"] and found["ray_workspace"]["ok"], found
    assert "2 nodes" in found["ray_nodes"]["text"]
    assert os.environ.get("RAY_AUTH_TOKEN") is None

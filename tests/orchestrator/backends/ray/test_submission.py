"""What a Ray job asks for and runs."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.atomic_files import current_umask
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.base import SubmitOutcome
from vtjobs.orchestrator.backends.ray.api import Api, Refused, auth_token, is_loopback
from vtjobs.orchestrator.backends.ray.cluster import Node
from vtjobs.orchestrator.backends.ray.submission import bad_nodes, request, submit

SITE: dict[str, Any] = {
    "cpus": 8,
    "gpus": 1,
    "custom": {},
    "setup": [],
    "python": "/opt/py thon",
    "address": "",
}


def allocation(*, nodes: int = 1, exclude: tuple[str, ...] = (), **site: Any) -> Allocation:
    task = Task(run_id="a" * 16, attempt=1, grid_id="g-1")
    return Allocation(
        token="vtj-1", created_at=0.0, shape=Shape(backend="ray", nodes=nodes, gpus=1), lanes=1, tasks=((task,),),
        data_root="", site={**SITE, **site}, exclude=exclude,
    )  # fmt: skip


def test_a_job_becomes_the_agent_and_logs_into_the_workspace(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "it's; here")
    found = request(allocation(setup=["module load x  # with a remark"]), workspace)
    assert found["submission_id"] == "vtj-1"
    assert (found["entrypoint_num_cpus"], found["entrypoint_num_gpus"]) == (8, 1)
    line = found["entrypoint"]
    mask, folder, clean, setup, agent = line.split("\n")
    assert (mask, folder) == (f"umask {current_umask():04o}", "cd /")
    assert clean.startswith("for name in ")
    assert setup == "module load x  # with a remark"
    assert agent.startswith("exec ")
    words = shlex.split(line.partition("exec ")[2])
    assert words[:4] == ["/opt/py thon", "-P", "-m", "vtjobs.workers.agent"]
    assert words[words.index("--workspace") + 1] == str(workspace.root)
    assert words[-3:] == [">>", str(workspace.allocations / "vtj-1-0-0.log"), "2>&1"]


def test_a_log_is_made_where_it_is_submitted_with_the_modes_of_the_workspace(
    tmp_path: Path,
) -> None:
    workspace = Workspace(tmp_path / "runs").create()
    workspace.allocations.chmod(0o2770)
    # Nobody listens there.
    found = submit(Api("http://127.0.0.1:9", insecure=True), allocation(), workspace)
    assert found.outcome is SubmitOutcome.UNCLEAR
    log = workspace.agent_log("vtj-1", 0, 0)
    assert log.stat().st_mode & 0o777 == 0o660


def test_a_job_of_several_nodes_takes_nothing_itself(tmp_path: Path) -> None:
    found = request(allocation(nodes=2, custom={"fast": 1.0}), Workspace(tmp_path))
    assert not [key for key in found if key.startswith("entrypoint_")]
    words = shlex.split(found["entrypoint"])
    assert words[words.index("--bundle") + 1] == '{"GPU": 1, "CPU": 8, "fast": 1.0}'


def test_nodes_that_failed_a_run_before_are_avoided_where_others_are_left(tmp_path: Path) -> None:
    has = {"GPU": 8.0, "CPU": 64.0}
    present = [Node(node_id=name, host=f"10.0.0.{name}", resources=has) for name in ("1", "2")]
    present.append(Node(node_id="head", host="10.0.0.9", resources={"CPU": 64.0}))
    assert bad_nodes(allocation(exclude=("10.0.0.1",)), present) == ["1"]
    assert bad_nodes(allocation(exclude=("10.0.0.1", "10.0.0.2")), present) == []
    assert bad_nodes(allocation(exclude=("10.0.0.1",), nodes=2), present) == []
    found = request(allocation(exclude=("10.0.0.1",)), Workspace(tmp_path), avoid=["1"])
    assert found["entrypoint_label_selector"] == {"ray.io/node-id": "!in(1)"}


def test_a_job_shows_nothing_but_its_grid_and_size(tmp_path: Path) -> None:
    made = changed(allocation(), data_root="/data")
    found = request(made, Workspace(tmp_path))
    assert found["metadata"].keys() == {"vtjobs_grid", "vtjobs_runs", "vtjobs_kind"}
    assert str(tmp_path) not in str(found["metadata"]) and "/data" not in str(found)
    assert found["runtime_env"] == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "150"}}


def test_only_this_machine_is_loopback() -> None:
    assert all(
        map(
            is_loopback,
            ("http://127.0.0.1:8265", "http://localhost", "http://[::1]:8265", "http://127.8.0.1"),
        )
    )
    assert not any(
        map(
            is_loopback,
            ("http://10.0.0.1:8265", "http://head", "http://localhost.evil.org", "http://1"),
        )
    )


@pytest.mark.parametrize(
    ("status", "text", "means", "reason"),
    [
        (
            500,
            (
                "RuntimeError: Request failed with status code 400: Traceback\nValueError: no such"
                " label\n."
            ),
            400,
            "no such",
        ),
        (
            500,
            "ValueError: Job with submission_id vtj-1 already exists. Please use another.\n.",
            500,
            "already exists",
        ),
        (
            500,
            "No available agent to submit job, please try again later.",
            500,
            "No available agent",
        ),
        (404, "", 404, "HTTP 404"),
    ],
)
def test_a_clusters_no_is_told_by_the_line_that_says_it(
    status: int, text: str, means: int, reason: str
) -> None:
    found = Api("http://127.0.0.1:1")._no(status, text)
    assert isinstance(found, Refused)
    assert (found.status, found.is_known) == (means, "already exists" in text)
    assert reason in str(found)


@pytest.mark.parametrize("text", ["one\ntwo", "a b", "caf\u00e9", "\udcff"])
def test_what_is_no_token_is_not_shown(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_bytes(text.encode(errors="surrogateescape"))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(BadInput) as caught:
        auth_token()
    assert text not in str(caught.value) and "token" in str(caught.value)


def test_a_token_comes_from_where_ray_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert auth_token() == ""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("usual\n")
    (tmp_path / "named").write_text("named\n")
    assert auth_token() == "usual"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "named"))
    assert auth_token() == "named"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    assert auth_token() == "given"


def test_a_token_file_that_is_named_and_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(BadInput, match=r"RAY_AUTH_TOKEN_PATH: .*none: No such file"):
        auth_token()

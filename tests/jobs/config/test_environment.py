"""What a job inherits of the shell that submits it."""

import subprocess

import pytest

from vtjobs.jobs.config.environment import (
    job_environment,
    named_variables,
    rank_environment,
    shell_filter,
)
from vtjobs.jobs.config.site import SiteSettings

SECRETS = {
    name: "canary"
    for name in (
        "WANDB_API_KEY",
        "HF_TOKEN",
        "HUGGINGFACE_HUB_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "OPENAI_API_KEY",
        "APPTAINER_DOCKER_PASSWORD",
        "SSH_AUTH_SOCK",
        "VTJOBS_LEDGER",
        "PGPASSWORD",
    )
}
NEEDED = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/me",
    "LC_ALL": "C.UTF-8",
    "LD_LIBRARY_PATH": "/opt/lib",
    "BASH_FUNC_module%%": "() {  eval $(modulecmd bash $*)\n}",
    "MODULEPATH": "/opt/modules",
    "CONDA_PREFIX": "/opt/conda",
    "NCCL_SOCKET_IFNAME": "ib0",
    "HF_HOME": "/data/hf",
    "TORCH_HOME": "/data/torch",
    "no_proxy": "localhost",
    "VTJOBS_FENCE_S": "3",
}


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SECRETS | NEEDED).items():
        monkeypatch.setenv(name, value)


def test_a_job_inherits_no_key_of_another_service_and_all_that_it_needs() -> None:
    found = job_environment()
    assert "canary" not in found.values()
    assert NEEDED.items() <= found.items()


def test_a_job_inherits_what_it_is_named_but_never_the_ledgers_password() -> None:
    found = job_environment({"WANDB_API_KEY", "VTJOBS_LEDGER"})
    assert [name for name, value in found.items() if value == "canary"] == ["WANDB_API_KEY"]


def test_an_address_with_a_password_is_not_passed_on_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:word@proxy:3128")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    found = job_environment()
    assert "https_proxy" not in found and found["http_proxy"] == "http://proxy:3128"
    assert "https_proxy" in job_environment({"https_proxy"})


def test_lines_of_shell_find_the_variables_that_they_refer_to() -> None:
    site = {"environment": ["WANDB_API_KEY"], "setup": ["export A=$LAB_DIR/x B=${SITE}"]}
    assert named_variables(site) == {"WANDB_API_KEY", "LAB_DIR", "SITE"}
    assert named_variables({}) == frozenset()


def test_a_shell_removes_the_same_and_keeps_its_own_schedulers_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCHED_JOB", "7")
    monkeypatch.setenv("LINES", "first\nHF_HOME=not me\nPATH=nor me")
    # Of bash alone: dash forgets such names by itself.
    monkeypatch.delenv("BASH_FUNC_module%%")
    script = shell_filter(["WANDB_API_KEY"], ["SCHED_"]) + "\nenv -0"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    expected = job_environment({"WANDB_API_KEY"}) | {"SCHED_JOB": "7"}
    assert found.keys() - {"PWD", "OLDPWD", "_"} == expected.keys() - {"PWD", "OLDPWD", "_"}
    assert found["PATH"] == NEEDED["PATH"]


def test_ranks_do_not_inherit_what_lets_their_agent_into_its_scheduler() -> None:
    agents = {"RAY_AUTH_TOKEN": "canary", "RAY_ADDRESS": "head:6379", "PATH": "/bin"}
    assert rank_environment(agents) == {"RAY_ADDRESS": "head:6379", "PATH": "/bin"}


@pytest.mark.parametrize("name", ["VTJOBS_LEDGER", "PGPASSWORD", "SLURM_JOB_ID", "A B", "A=1", ""])
def test_what_no_job_may_inherit_cannot_be_named(name: str) -> None:
    with pytest.raises(ValueError, match=r"environment"):
        SiteSettings.model_validate({"environment": [name]})

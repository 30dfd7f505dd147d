"""What doctor makes of a site and of a node."""

import re
from typing import Any

import pytest

from vtjobs.jobs.config.wheels import remedy
from vtjobs.jobs.workspace.reach import Reach
from vtjobs.orchestrator.backends.slurm import doctor
from vtjobs.orchestrator.backends.slurm.doctor import MOST_SKEW_S, findings, judge

from ....support.scheduler import Commands

SOUND = {
    "host": "gpu0",
    "time": 1000.0,
    "workspace_id": "abc",
    "writable": True,
    "cpus": 8,
    "gpus": ["0"],
    "reach": "",
    "torch": "2.6.0",
    "architectures": ["sm_70", "sm_80", "sm_90"],
    "nccl": True,
    "devices": [{"name": "V100", "capability": "7.0"}],
}
CONFIG = """
AccountingStorageType = accounting_storage/slurmdbd
ClusterName = dev
KillWait = 5 sec
MaxArraySize = 1001
MaxJobCount = 10000
PreemptMode = REQUEUE
PreemptType = preempt/partition_prio
SLURM_VERSION = 22.05.8
"""


def judged(*, expected: str | None = "abc", **seen: Any) -> dict[str, tuple[bool, str, str]]:
    found = judge({**SOUND, **seen}, began=999.0, ended=1001.0, expected=expected)
    return {name: (ok, text, fix) for name, ok, text, fix in found}


def test_a_sound_node_passes_every_check() -> None:
    found = judged()
    assert [name for name, (ok, _, fix) in found.items() if not ok or fix] == []
    assert found["probe"][1] == "gpu0: 8 cores, 1 GPU granted"
    assert found["probe_gpu"][1] == "V100, compute capability 7.0"


@pytest.mark.parametrize(
    "seen", [{"workspace_id": None}, {"workspace_id": "other"}, {"writable": False}]
)
def test_a_workspace_that_the_node_does_not_share_is_a_fault(seen: dict[str, Any]) -> None:
    ok, text, fix = judged(**seen)["probe_workspace"]
    assert not ok and "not readable" in text and "file system that the nodes share" in fix


def test_a_workspace_that_is_not_there_yet_is_no_fault() -> None:
    assert "probe_workspace" not in judged(expected=None, workspace_id=None, writable=False)


@pytest.mark.parametrize(
    ("time", "ok"),
    [
        (1000.0, True),
        (999.0 - MOST_SKEW_S, True),
        (1001.0 + MOST_SKEW_S + 1, False),
        (999.0 - MOST_SKEW_S - 1, False),
    ],
)
def test_a_clock_may_differ_a_little(time: float, ok: bool) -> None:
    found = judged(time=time)["probe_clock"]
    assert (found[0], bool(found[2])) == (ok, not ok)


@pytest.mark.parametrize(
    ("seen", "site", "ok", "says"),
    [
        (None, {}, True, "not known yet: the first job to start looks, or now: vtjobs doctor"),
        (Reach(at=0.0, host="gpu0", reason=""), {}, True, "a node reached the controller (gpu0, "),
        (Reach(at=0.0, host="gpu0", reason="away"), {}, False, "a node did not reach"),
        (
            Reach(at=0.0, host="gpu0", reason="away"),
            {"handover": False},
            True,
            "off: retries and successors",
        ),
    ],
)
def test_it_says_what_a_node_saw_last_of_the_controller(
    seen: Reach | None, site: dict[str, Any], ok: bool, says: str
) -> None:
    name, found, text, fix = doctor.handover(seen, site)
    assert (name, found, bool(fix)) == ("slurm_handover", ok, not ok)
    assert text.startswith(says)


@pytest.mark.parametrize(
    ("capability", "architectures", "ok"),
    [
        ("7.0", ["sm_70"], True),
        ("7.5", ["sm_70"], True),
        ("8.6", ["sm_80", "sm_90"], True),
        ("8.0", ["sm_86"], False),
        ("6.1", ["sm_70", "sm_80"], False),
        ("9.0", ["sm_80", "compute_90"], True),
        ("9.0", ["compute_80"], True),
        ("7.0", ["sm_75", "sm_90a", "sm_120"], False),
        ("7.0", [], True),
    ],
)
def test_a_gpu_needs_a_wheel_that_was_built_for_it(
    capability: str, architectures: list[str], ok: bool
) -> None:
    devices = [{"name": "GPU", "capability": capability}]
    found = judged(devices=devices, architectures=architectures)["probe_gpu"]
    assert found[0] is ok
    assert found[2] == ("" if ok else remedy(capability))


def test_gpus_without_nccl_are_a_fault() -> None:
    assert judged(nccl=False)["probe_nccl"] == (
        False,
        "NCCL missing",
        "Install a CUDA build of torch",
    )


def test_a_gpu_that_was_granted_and_is_not_seen_is_a_fault() -> None:
    ok, text, _ = judged(devices=[], error="no driver")["probe_gpu"]
    assert (ok, text) == (False, "no driver")


def test_a_node_without_gpus_needs_none() -> None:
    found = judged(devices=[], gpus=[])
    assert "probe_gpu" not in found and "probe_nccl" not in found


def test_a_node_without_torch_is_a_fault_and_says_why() -> None:
    ok, text, fix = judged(torch=None, error="No module named torch")["probe_torch"]
    assert (ok, text) == (False, "No module named torch") and "Install vtjobs" in fix


# The site -----------------------------------------------------------------------------------------


@pytest.fixture
def site(commands: Commands) -> Commands:
    commands.prints(
        "sinfo",
        "gpu*|up|1-00:00:00|NO|4|64|1|0|(null)|gpu:v100:8\nold|down|infinite|EXCLUSIVE|1|8|1|0|(null)|(null)",
    )
    commands.prints("sacctmgr", "lab|100||normal,other|")
    commands.prints("sacct", "")
    parts = "PartitionName=old GraceTime=8 State=UP\nPartitionName=gpu GraceTime=0 State=UP"
    commands.answers(
        "scontrol",
        f"case \"$*\" in *config) cat <<'END'\n{CONFIG}\nEND\n;; *) echo '{parts}';; esac",
    )
    return commands


def examined(**settings: Any) -> dict[str, tuple[bool, str, str]]:
    return {name: (ok, text, fix) for name, ok, text, fix in findings(settings, look_s=60)}


def test_a_site_is_described_by_what_a_grid_has_to_live_with(site: Commands) -> None:
    found = examined()
    assert {name: text for name, (ok, text, _) in found.items() if ok} == {
        "slurm": "22.05.8, cluster dev",
        "slurm_accounting": "sacct answers",
        "slurm_limits": (
            "job arrays of up to 1,001 elements, jobs that may be submitted now: 10,000"
            " (MaxJobCount)"
        ),
        "slurm_partition": "gpu: 4 nodes of 8 v100 GPUs and 64 cores, 1d00h",
        "slurm_preemption": (
            "REQUEUE, grace 0/8 s; checkpoint_every limits the work that a preemption loses"
        ),
        "slurm_kill_wait": "KILL follows TERM after 5 s",
    }


def test_a_controller_that_is_away_is_one_finding(site: Commands) -> None:
    site.fails(
        "scontrol",
        "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)",
    )
    ((name, (ok, text, _)),) = examined().items()
    assert (name, ok) == ("slurm", False) and "Unable to contact slurm controller" in text


def test_a_controller_that_is_slower_than_a_look_may_be_is_told_with_what_to_set(
    site: Commands,
) -> None:
    (found,) = [one for one in findings({}, look_s=0) if one.name == "slurm_late"]
    assert found.ok and found.text.endswith("commands that read wait 0 s (look_s)")
    assert re.search(r"set look_s: [1-9]", found.fix)


def test_accounting_that_is_away_is_a_fault_and_none_at_all_is_not(site: Commands) -> None:
    site.fails("sacct", "sacct: error: Problem talking to the database: Connection refused")
    assert examined()["slurm_accounting"][0] is False
    site.fails("sacct", "Slurm accounting storage is disabled")
    assert examined()["slurm_accounting"] == (True, "none", "")


@pytest.mark.parametrize(
    ("name", "says"), [("old", "It is down"), ("nope", "Set slurm.partition to one of: gpu, old")]
)
def test_a_partition_that_takes_no_jobs_is_a_fault(site: Commands, name: str, says: str) -> None:
    ok, _, fix = examined(partition=name)["slurm_partition"]
    assert (ok, fix) == (False, says)


def test_a_probe_asks_for_what_a_run_with_one_gpu_would(site: Commands) -> None:
    settings = {
        "reservation": "r",
        "exclude": "gpu3",
        "account": "lab",
        "extra": {"licenses": "m:1", "mail-type": "END", "begin": "now+1hour"},
    }
    assert doctor._probe_options(settings) == [
        "--gpus-per-node=1",
        "--account=lab",
        "--reservation=r",
        "--exclude=gpu3",
        "--licenses=m:1",
    ]


def test_a_login_node_is_one_that_has_sbatch(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(commands.folder))
    assert not doctor.is_here()
    commands.prints("sbatch", "")
    assert doctor.is_here()

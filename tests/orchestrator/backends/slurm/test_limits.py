"""How many jobs may still be submitted, from what SLURM's commands print.

tests/slurm/test_counting.py holds the same against a real controller.
"""

import getpass
import os
import time

import pytest

from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.orchestrator.backends.slurm import cluster, limits

from ....support.scheduler import Commands

CONFIG = """
ClusterName             = dev
MaxArraySize            = 1001
MaxJobCount             = 10000
AccountingStorageEnforce = {enforced}
"""
USER = f"{getpass.getuser()}({os.getuid()})"


def association(account: str, most: str, *, group: str = "N(0)", default: bool = True) -> str:
    return (
        f"ClusterName=dev Account={account} UserName={USER} Partition= Priority=0 ID=4\n"
        f"    ParentAccount= Lft=3 DefAssoc={'Yes' if default else 'No'}\n"
        f"    GrpSubmitJobs={group} GrpWall=N(0.00)\n"
        f"    MaxJobs= MaxJobsAccrue= MaxSubmitJobs={most} MaxWallPJ=\n"
    )


def account(name: str, group: str, *, parent: str = "") -> str:
    return (
        f"ClusterName=dev Account={name} UserName= Partition= Priority=0 ID=3\n"
        f"    ParentAccount={parent} Lft=2 DefAssoc=No\n    GrpSubmitJobs={group} GrpWall=N(0.00)\n"
    )


def qos(name: str, *, group: str = "N(0)", of_user: str = "", of_account: str = "") -> str:
    users = f"      {os.getuid()}\n        MaxSubmitJobsPU={of_user}\n" if of_user else ""
    accounts = f"      lab\n        MaxSubmitJobsPA={of_account}\n" if of_account else ""
    return (
        f"QOS={name}(3)\n    GrpJobs=N(0) GrpSubmitJobs={group} GrpWall=N(0.00)\n"
        f"    Account Limits\n{accounts or '        No Accounts'}\n"
        f"    User Limits\n{users or '        No Users'}\n"
    )


def site(
    commands: Commands,
    counted: str,
    *,
    all_qos: str = "normal||||",
    associations: str = "lab||normal|",
    partitions: str = "PartitionName=gpu AllowQos=ALL QoS=N/A State=UP",
    enforced: str = "associations,limits,qos",
) -> None:
    """Make a controller and accounting that say this."""
    config = CONFIG.format(enforced=enforced)
    cases = (("*assoc_mgr*", counted), ("*partition*", partitions), ("*", config))
    commands.answers("scontrol", _case(cases))
    commands.answers("sacctmgr", _case((("*associations*", associations), ("*", all_qos))))


def _case(answers: tuple[tuple[str, str], ...]) -> str:
    lines = "".join(f"{name}) cat <<'END'\n{text}\nEND\n;;\n" for name, text in answers)
    return f'case "$*" in\n{lines}esac'


def free(partition: str = "gpu", **chosen: str) -> dict[str, int]:
    found = limits.free(chosen, partition, mine=0, deadline_s=10)
    del found["MaxJobCount"]
    return found


def test_without_limits_of_its_own_a_user_has_the_controllers(commands: Commands) -> None:
    site(commands, association("lab", "N(7)"))
    assert limits.free({}, "gpu", mine=4, deadline_s=10) == {"MaxJobCount": 9996}


def test_limits_that_are_not_enforced_do_not_count(commands: Commands) -> None:
    site(commands, association("lab", "3(3)"), enforced="none")
    assert free() == {}


def test_what_is_left_is_what_the_controller_counts_whoever_has_used_it(
    commands: Commands,
) -> None:
    tree = association("lab", "10(4)") + account("lab", "20(19)", parent="root(1)")
    site(commands, tree + account("root", "N(30)"))
    assert free() == {"MaxSubmitJobs of account lab": 6, "GrpSubmitJobs of account lab": 1}


def test_jobs_of_the_default_account_do_not_count_for_another(commands: Commands) -> None:
    site(commands, association("lab", "3(3)") + association("b", "9(1)", default=False))
    assert free() == {"MaxSubmitJobs of account lab": 0}
    assert free(account="b") == {"MaxSubmitJobs of account b": 8}


def test_each_qos_has_its_own_count_and_takes_the_associations_place(commands: Commands) -> None:
    counted = association("lab", "3(3)") + qos("long", of_user="50(2)") + qos("short")
    site(commands, counted, all_qos="long|||50|\nshort|||5|")
    assert free(qos="long") == {"MaxSubmitJobsPU of QOS long": 48}
    assert free(qos="short") == {"MaxSubmitJobsPU of QOS short": 5}, "nobody has a job there yet"


@pytest.mark.parametrize(
    ("flags", "limit"), [("", {"MaxSubmitJobsPU of QOS part": 1}), ("OverPartQOS", {"MaxSubmitJobsPU of QOS long": 48})]
)  # fmt: skip
def test_a_partitions_qos_comes_first_unless_the_jobs_says_otherwise(
    commands: Commands, flags: str, limit: dict[str, int]
) -> None:
    site(
        commands,
        qos("long", of_user="50(2)") + qos("part", of_user="3(2)"),
        all_qos=f"long|{flags}||50|\npart|||3|",
        partitions="PartitionName=gpu AllowQos=ALL QoS=part State=UP",
    )
    assert free(qos="long") == limit


def test_the_qos_is_the_associations_where_none_is_asked_for(commands: Commands) -> None:
    counted = association("lab", "N(0)") + qos("low", group="9(4)")
    site(commands, counted, associations="lab||normal,low|low")
    assert free() == {"GrpSubmitJobs of QOS low": 5}


def test_a_controller_that_tells_this_user_nothing_leaves_it_to_its_refusals(
    commands: Commands,
) -> None:
    config = CONFIG.format(enforced="limits")
    denied = "echo 'scontrol: error: Access/permission denied' >&2; exit 1"
    commands.answers(
        "scontrol", f"case \"$*\" in\n*assoc_mgr*) {denied};;\n*) cat <<'END'\n{config}\nEND\nesac"
    )
    commands.fails("sacctmgr", "sacctmgr: error: Problem talking to the database")
    assert free() == {}


def test_a_controller_that_is_away_leaves_the_limits_unknown(commands: Commands) -> None:
    commands.fails(
        "scontrol",
        "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)",
    )
    with pytest.raises(SchedulerUnreachable):
        limits.rules(deadline_s=10)


def test_what_a_site_allows_is_asked_for_once_a_minute_and_what_is_used_each_time(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    site(commands, association("lab", "3(0)"))
    assert [free(), free()] == [{"MaxSubmitJobs of account lab": 3}] * 2
    assert sum("config" in call for call in commands.calls("scontrol")) == 1
    assert sum("assoc_mgr" in call for call in commands.calls("scontrol")) == 2
    monkeypatch.setattr(limits.time, "monotonic", lambda: began + cluster.FRESH_S + 60)
    free()
    assert sum("config" in call for call in commands.calls("scontrol")) == 2


def test_an_array_has_no_more_elements_than_the_second_limit_allows(commands: Commands) -> None:
    extra = "SchedulerParameters = bf_max=9,max_array_tasks=100"
    commands.prints("scontrol", f"MaxArraySize = 1001\n{extra}\n")
    assert limits.rules(deadline_s=10).array_size == 100

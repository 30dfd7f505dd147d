"""Partitions that never let a job in are known before it is submitted."""

from typing import Any

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.orchestrator.backends.slurm.doors import Credentials, closed, credentials, require_open
from vtjobs.orchestrator.backends.slurm.partitions import Partition

from ....support.scheduler import Commands

CONFIG = {"SLURM_VERSION": "22.05.8", "AccountingStorageEnforce": "associations,limits,qos"}


def part(**facts: str) -> Partition:
    return Partition(name="gpu", facts={"QoS": "N/A", **facts})


def me(**fields: Any) -> Credentials:
    plain = {"account": "lab", "qos": "normal", "groups": frozenset(("users", "vision"))}
    return Credentials(**{**plain, **fields})


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"AllowAccounts": "theirs"}, "partition gpu is open to account theirs, not lab"),
        ({"DenyAccounts": "lab,x"}, "partition gpu is closed to account lab"),
        ({"AllowQos": "elite"}, "partition gpu is open to QOS elite, not normal"),
        ({"DenyQos": "normal"}, "partition gpu is closed to QOS normal"),
        ({"AllowGroups": "staff,admin"}, "partition gpu is open to group admin, staff"),
    ],
)
def test_a_partition_that_lists_others_is_closed(facts: dict[str, str], says: str) -> None:
    problem = closed(part(**facts), me(), None)
    assert problem is not None and problem.message == says


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"AllowAccounts": "ALL", "AllowQos": "ALL", "AllowGroups": "ALL"},
        {"AllowAccounts": "theirs,Lab"},
        {"AllowGroups": "staff,vision"},
        {"DenyAccounts": "theirs"},
    ],
)
def test_a_partition_that_lists_nobody_or_this_user_is_open(facts: dict[str, str]) -> None:
    assert closed(part(**facts), me(), None) is None


def test_what_is_not_known_keeps_nobody_out() -> None:
    facts = {"AllowAccounts": "theirs", "AllowQos": "elite", "AllowGroups": "staff"}
    assert closed(part(**facts), Credentials(), 3600) is None


@pytest.mark.parametrize(("qos", "is_closed"), [("N/A", True), ("part-gpu", False)])
def test_a_walltime_above_the_limit_of_the_qos_is_refused(qos: str, is_closed: bool) -> None:
    own = me(most_s=1800, limited_by="QOS normal")
    problem = closed(part(QoS=qos), own, 3600)
    assert (problem is not None) is is_closed
    assert closed(part(), own, 1800) is None


# As what a job comes ------------------------------------------------------------------------------


@pytest.fixture
def sacctmgr(commands: Commands) -> Commands:
    users = "lab|lab||normal|\nlab|other|short|normal,short|2:00:00"
    commands.answers(
        "sacctmgr",
        f"case \"$*\" in *user*) printf '{users}\n';; *) printf 'normal|1:00:00\nshort|\n';; esac",
    )
    return commands


@pytest.mark.parametrize(
    ("site", "account", "qos", "most_s"),
    [
        ({}, "lab", "normal", 3600),
        ({"account": "other"}, "other", "short", 7200),
        ({"account": "other", "qos": "normal"}, "other", "normal", 3600),
    ],
)
def test_a_job_comes_as_the_settings_or_accounting_say(
    sacctmgr: Commands, site: dict[str, str], account: str, qos: str, most_s: int
) -> None:
    own = credentials(site, CONFIG, deadline_s=10)
    assert (own.account, own.qos, own.most_s) == (account, qos, most_s)


def test_limits_that_are_not_enforced_are_none(sacctmgr: Commands) -> None:
    config = {**CONFIG, "AccountingStorageEnforce": "none"}
    assert credentials({}, config, deadline_s=10).most_s is None


def test_a_list_of_accounts_that_may_mean_those_below_them_is_left_to_slurm(
    sacctmgr: Commands,
) -> None:
    own = credentials({}, {**CONFIG, "SLURM_VERSION": "23.11.4"}, deadline_s=10)
    assert (own.account, own.qos) == (None, "normal")


def test_without_accounting_only_the_settings_are_known(commands: Commands) -> None:
    commands.fails("sacctmgr", "You are not running a supported accounting_storage plugin")
    own = credentials({"qos": "high"}, CONFIG, deadline_s=10)
    assert (own.account, own.qos, own.most_s) == (None, "high", None)


def test_one_open_partition_of_a_list_is_enough(sacctmgr: Commands) -> None:
    sacctmgr.prints("scontrol", "SLURM_VERSION = 22.05.8")
    shut = part(AllowAccounts="theirs")
    require_open({}, [shut, part()], None, deadline_s=10)
    with pytest.raises(BadInput, match="account: partition gpu is open to account theirs"):
        require_open({}, [shut, shut], None, deadline_s=10)

"""Calling SLURM's commands."""

import time

import pytest

from vtjobs.jobs.errors import BadInput, SchedulerSlow, SchedulerUnreachable
from vtjobs.orchestrator.backends.slurm.shell import NoAccounting, ask, is_away, reason_of, user

from ....support.scheduler import Commands


def test_what_a_command_prints_is_returned(commands: Commands) -> None:
    commands.prints("squeue", "34|0|RUNNING")
    assert ask(["squeue", "--me", "a b"], deadline_s=10) == "34|0|RUNNING\n"
    assert commands.calls("squeue") == ["--me a b"]


def test_a_command_that_does_not_answer_is_given_up_at_its_deadline(commands: Commands) -> None:
    commands.answers("squeue", "exec sleep 30")
    began = time.monotonic()
    with pytest.raises(SchedulerSlow, match=r"squeue did not answer within 0\.3 s"):
        ask(["squeue"], deadline_s=0.3)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Slurmctld(primary) at head is DOWN", SchedulerUnreachable),
        ("Slurmctld(primary) at head is DOWN\nSlurmctld(backup) at b is UP", SchedulerSlow),
        ("Slurmctld(primary) at head is UP", SchedulerSlow),
    ],
)
def test_a_controller_that_is_gone_is_told_from_a_slow_one_before_clients_give_up(
    commands: Commands, said: str, kind: type[Exception]
) -> None:
    commands.answers("squeue", "exec sleep 30")
    commands.answers("scontrol", f"echo '{said}'; exit 1")
    with pytest.raises(SchedulerUnreachable) as caught:
        ask(["squeue"], deadline_s=0.3)
    assert type(caught.value) is kind
    assert commands.calls("scontrol") == ["ping"]


def test_a_controller_that_answers_neither_a_question_nor_a_ping_may_be_slow(
    commands: Commands,
) -> None:
    commands.answers("squeue", "exec sleep 30")
    commands.answers("scontrol", "exec sleep 30")
    with pytest.raises(SchedulerSlow):
        ask(["squeue"], deadline_s=0.3)


def test_a_client_that_gives_up_before_us_says_that_it_is_slow(commands: Commands) -> None:
    commands.fails("squeue", "slurm_load_jobs error: Socket timed out on send/recv operation")
    with pytest.raises(SchedulerSlow, match="squeue: slurm_load_jobs error: Socket timed out"):
        ask(["squeue"], deadline_s=10)
    commands.fails("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(SchedulerUnreachable) as caught:
        ask(["squeue"], deadline_s=10)
    assert not isinstance(caught.value, SchedulerSlow)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        ),
        ("squeue: error: Invalid user: nobody\nmore", "squeue: Invalid user: nobody"),
        ("\n", "squeue: exit code 1"),
    ],
)
def test_a_command_that_fails_tells_nothing_but_why(
    commands: Commands, said: str, told: str
) -> None:
    commands.answers("squeue", "echo '34|0|RUNNING'")
    commands.fails("squeue", said)
    with pytest.raises(SchedulerUnreachable) as caught:
        ask(["squeue"], deadline_s=10)
    assert str(caught.value) == told


def test_a_cluster_without_accounting_is_told_apart_from_one_that_is_away(
    commands: Commands,
) -> None:
    commands.fails("sacct", "Slurm accounting storage is disabled")
    with pytest.raises(NoAccounting):
        ask(["sacct"], deadline_s=10)
    commands.fails("sacct", "sacct: error: Problem talking to the database: Connection refused")
    with pytest.raises(SchedulerUnreachable):
        ask(["sacct"], deadline_s=10)


def test_a_machine_without_the_command_is_no_login_node(commands: Commands) -> None:
    with pytest.raises(BadInput, match="vtj-no-such-command not found: is this a login node"):
        ask(["vtj-no-such-command"], deadline_s=10)


def test_a_query_inherits_no_option_and_no_secret_and_finds_its_cluster(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "SQUEUE_FORMAT",
        "SLURM_CLUSTERS",
        "SBATCH_PARTITION",
        "SCANCEL_STATE",
        "SINFO_PARTITION",
        "PGPASSFILE",
    ):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setenv("VTJOBS_LEDGER", "postgresql://me:sesame@host/name")
    monkeypatch.setenv("SLURM_CONF", "/etc/some/slurm.conf")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    commands.prints("squeue", "")
    ask(["squeue"], deadline_s=10)
    had = commands.environment_of("squeue")
    assert "theirs" not in had.values() and "VTJOBS_LEDGER" not in had
    assert had["SLURM_CONF"] == "/etc/some/slurm.conf"
    assert (had["SLURM_TIME_FORMAT"], had["SLURM_BITSTR_LEN"], had["LC_ALL"]) == ("%s", "0", "C")


def test_a_query_does_not_read_the_terminal(commands: Commands) -> None:
    commands.answers("squeue", "cat; echo end")
    assert ask(["squeue"], deadline_s=10) == "end\n"


def test_text_that_is_not_utf8_is_read_all_the_same(commands: Commands) -> None:
    commands.answers("squeue", r"printf 'a\377b\n'")
    assert ask(["squeue"], deadline_s=10) == "a�b\n"


@pytest.mark.parametrize(
    ("text", "away"),
    [
        (
            (
                "sbatch: error: Batch job submission failed: Unable to contact slurm controller"
                " (connect failure)"
            ),
            True,
        ),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            True,
        ),
        (
            "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
            True,
        ),
        (
            "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode",
            True,
        ),
        ("sacct: error: Problem talking to the database: Connection refused", True),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", False),
        ("sbatch: error: invalid partition specified: nope", False),
    ],
)
def test_a_daemon_that_is_away_is_told_apart_from_one_that_says_no(text: str, away: bool) -> None:
    assert is_away(text) is away


def test_the_reason_is_told_without_the_commands_name() -> None:
    assert reason_of("\n  sbatch: error: Invalid qos\nmore\n") == "Invalid qos"
    assert reason_of(" \n") == ""


def test_the_user_is_asked_about_by_number() -> None:
    assert user().isdigit()

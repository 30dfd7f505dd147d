"""The list of commands, and the answer to a command that does not exist."""

from collections.abc import Sequence

import pytest

from vtjobs.cli import application
from vtjobs.commands.groups import GROUPS, READING, SYNONYMS

from ..support.cli import Cli


def made_for(words: Sequence[str]) -> set[str]:
    """Return the names of the commands that are made."""
    app = application(words)
    return {str(one.name) for one in (*app.registered_commands, *app.registered_groups)}


NAMES = made_for(())


def test_every_command_stands_in_one_group() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["status", "tiny"], {"status"}),
        (["data", "list"], {"data"}),
        (["help", "status"], NAMES),
        (["--help"], NAMES),
        (["stauts"], NAMES),
        ([], NAMES),
    ],
)
def test_only_the_command_that_is_asked_for_is_made(words: list[str], made: set[str]) -> None:
    assert made_for(words) == made


def test_completion_knows_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_VTJOBS_COMPLETE", "complete_bash")
    assert made_for(["status"]) == NAMES


def test_every_synonym_leads_to_a_command_and_hides_none() -> None:
    assert set(SYNONYMS.values()) <= NAMES
    assert not SYNONYMS.keys() & NAMES
    assert READING <= NAMES


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("stop", "vtjobs cancel: Stop runs"),
        ("ls", "vtjobs runs: List runs"),
        ("repor", "Did you mean 'report'?"),
        ("cancl", "See: vtjobs --help"),
    ],
)
def test_an_unknown_command_is_answered_with_one_that_changes_nothing_or_its_synonym(
    cli: Cli, word: str, says: str
) -> None:
    done = cli(word)
    assert done.returncode == 2
    assert f"no command '{word}'" in done.stderr and says in done.stderr


def test_help_and_version_can_be_asked_for(cli: Cli) -> None:
    assert "Usage: vtjobs compare" in cli.ok("help", "compare")
    assert "Usage: vtjobs data verify" in cli.ok("help", "data", "verify")
    assert cli.ok("--version").startswith("vtjobs ")
    assert cli("help", "nope").returncode == 2


@pytest.mark.parametrize("columns", ["60", "100"])
def test_the_list_of_commands_has_whole_sentences_at_any_width(cli: Cli, columns: str) -> None:
    text = cli.process("--help", COLUMNS=columns).stdout
    assert "..." not in text.partition("First steps:")[2]
    assert max(map(len, text.splitlines())) <= int(columns)

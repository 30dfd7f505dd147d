"""`notify:` of vtjobs.yaml: what is taken, refused and shown."""

from pathlib import Path

import pytest

from vtjobs.jobs.config.config import load_config
from vtjobs.jobs.config.notices import KINDS, notice_settings, shown
from vtjobs.jobs.errors import BadInput


def test_one_address_is_enough_and_everything_is_told() -> None:
    found = notice_settings({"to": "file:~/.config/vtjobs/notify"})
    assert found.addresses == ("file:~/.config/vtjobs/notify",) and found.on == KINDS


def test_a_command_is_an_address_of_its_own() -> None:
    found = notice_settings({"command": "python told.py 'a b'", "on": ["finish"]})
    assert found.command == ("python", "told.py", "a b") and found.addresses == ("command",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"too": []}, "unknown key 'too'. Did you mean 'to'"),
        ({"to": ["slack"]}, "expected env:NAME, file:PATH or a URL"),
        ({"to": ["env:"]}, "expected env:NAME"),
        ({"to": [3]}, "to: expected a list of texts"),
        ({"on": ["end"]}, "on: unknown 'end'"),
        ({"command": ""}, "command: expected a program"),
        ({"every_s": "5m"}, "every_s: expected a whole number of seconds"),
        ({"stall_s": True}, "stall_s: expected a whole number of seconds"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_key_and_file(
    given: dict[str, object], words: str, tmp_path: Path
) -> None:
    import yaml

    (tmp_path / "vtjobs.yaml").write_text(yaml.safe_dump({"notify": given}), encoding="utf-8")
    with pytest.raises(BadInput, match=r"vtjobs\.yaml:1: notify: ") as caught:
        load_config(environ={}, folder=tmp_path)
    assert words in str(caught.value)


def test_a_url_is_shown_without_what_may_be_a_password() -> None:
    given = {"to": ["slack://token@channel", "env:SLACK"], "on": ["fail"]}
    assert shown(given) == {"to": ["slack://…", "env:SLACK"], "on": ["fail"]}

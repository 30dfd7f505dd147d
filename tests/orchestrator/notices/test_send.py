"""The outbox is emptied once, whoever sends, is killed or cannot reach a service."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vtjobs.jobs.config.notices import NoticeSettings
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.notices.message import MOST_LINES, message_of
from vtjobs.orchestrator.notices.outbox import BACK_OFF_S, CLAIM_S, Notice, Outbox
from vtjobs.orchestrator.notices.send import NotSent, send, urls_of

from ...support.webhook import Webhook, webhook

NOW = 1_000_000.0


def notice(number: int, kind: str = "fail", at: float = NOW + 1) -> Notice:
    return Notice(
        key=f"{kind}-{number}", kind=kind, grid_id="g-1", at=at, text=f"g-1: run {number} failed"
    )


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(Workspace(tmp_path / "runs").create())


def settings_of(hook: Webhook, **more: object) -> NoticeSettings:
    return NoticeSettings(to=(hook.url,), **more)  # type: ignore[arg-type]


def test_all_that_waits_goes_in_one_message_and_only_once(outbox: Outbox) -> None:
    with webhook() as hook:
        settings = settings_of(hook)
        outbox.begin(settings.addresses, NOW)
        outbox.add([notice(1), notice(2), notice(3, "finish")])
        send(outbox, settings, environ={}, now=NOW + 2)
        outbox.add([notice(1), notice(2)])
        send(outbox, settings, environ={}, now=NOW + 10_000)
    (message,) = hook.messages
    assert message["title"] == "vtjobs: g-1: ended, 2 runs failed"
    assert message["message"].count("\n") == 2


def test_what_happened_before_an_address_was_named_is_not_told(outbox: Outbox) -> None:
    with webhook() as hook:
        settings = settings_of(hook)
        outbox.add([notice(1, at=NOW - 5)])
        outbox.begin(settings.addresses, NOW)
        assert send(outbox, settings, environ={}, now=NOW + 2) == {} and hook.messages == []


def test_between_two_messages_lies_the_time_that_was_asked_for(outbox: Outbox) -> None:
    with webhook() as hook:
        settings = settings_of(hook, every_s=300)
        outbox.begin(settings.addresses, NOW)
        for number, later in enumerate((1.0, 200.0, 302.0)):
            outbox.add([notice(number)])
            send(outbox, settings, environ={}, now=NOW + later)
    assert [one["message"].count("\n") + 1 for one in hook.messages] == [1, 2]


def test_a_service_that_is_down_for_an_hour_is_told_everything_afterwards(outbox: Outbox) -> None:
    with webhook() as hook:
        settings = settings_of(hook)
        outbox.begin(settings.addresses, NOW)
        outbox.add([notice(1)])
        hook.status, tries = 503, 0
        for minute in range(60):
            tries += len(send(outbox, settings, environ={}, now=NOW + 60 * minute))
        assert 3 <= tries <= 8
        last = outbox.tried(hook.url)
        assert last is not None and last.failures == tries and "no answer" in last.error
        hook.status = 200
        outbox.add([notice(2)])
        send(outbox, settings, environ={}, now=NOW + 3600 + BACK_OFF_S[1])
        assert [one["message"].count("\n") + 1 for one in hook.messages] == [2]
        assert outbox.open_notices(hook.url) == []


def test_one_address_that_fails_costs_the_others_nothing(outbox: Outbox) -> None:
    with webhook() as hook:
        settings = NoticeSettings(to=("env:NOT_SET", hook.url))
        outbox.begin(settings.addresses, NOW)
        outbox.add([notice(1)])
        found = send(outbox, settings, environ={}, now=NOW + 2)
    assert len(hook.messages) == 1
    assert "the variable NOT_SET is not set on" in found["env:NOT_SET"].error
    assert len(outbox.open_notices("env:NOT_SET")) == 1


def test_a_message_with_a_thousand_failures_stays_short() -> None:
    message = message_of([notice(number) for number in range(1000)])
    lines = message.body.splitlines()
    assert len(lines) == MOST_LINES + 1 and lines[-1] == "… and 980 more"
    assert message.title == "vtjobs: g-1: 1000 runs failed"


def test_addresses_come_from_the_environment_or_from_a_file_that_nobody_else_reads(
    tmp_path: Path,
) -> None:
    assert urls_of("env:A", {"A": "json://a json://b"}) == ["json://a", "json://b"]
    path = tmp_path / "addresses"
    path.write_text("# mine\njson://a\n\njson://b\n", encoding="utf-8")
    path.chmod(0o640)
    with pytest.raises(NotSent, match=f"others may read it. Run: chmod 600 {path}"):
        urls_of(f"file:{path}", {})
    path.chmod(0o600)
    assert urls_of(f"file:{path}", {}) == ["json://a", "json://b"]
    with pytest.raises(NotSent, match="No such file"):
        urls_of(f"file:{path}x", {})


def test_no_secret_lies_in_the_workspace(outbox: Outbox) -> None:
    with webhook() as hook:
        hook.status = 500
        settings = settings_of(hook)
        outbox.begin(settings.addresses, NOW)
        outbox.add([notice(1)])
        (tried,) = send(outbox, settings, environ={}, now=NOW + 2).values()
    files = [path for path in outbox.folder.rglob("*") if path.is_file()]
    texts = [str(path) + path.read_text(encoding="utf-8") for path in files]
    assert len(files) == 3 and tried.failures == 1
    assert not any("s3cret" in text for text in texts)


def test_a_claim_of_a_sender_that_is_gone_is_taken_over(outbox: Outbox) -> None:
    with outbox.claimed(NOW) as first, outbox.claimed(NOW) as second:
        assert (first, second) == (True, False)
    (outbox.folder / "sender").write_text("{}", encoding="utf-8")
    os.utime(outbox.folder / "sender", (NOW, NOW))
    with outbox.claimed(NOW + CLAIM_S - 1) as early:
        assert not early
    with outbox.claimed(NOW + CLAIM_S + 1) as late:
        assert late
    assert list(outbox.folder.iterdir()) == []


def test_a_claim_that_was_taken_over_is_not_given_up_by_its_first_owner(outbox: Outbox) -> None:
    with outbox.claimed(NOW) as ours:
        assert ours
        os.utime(outbox.folder / "sender", (NOW, NOW))
        with outbox.claimed(NOW + CLAIM_S + 1) as theirs:
            assert theirs
            taken = (outbox.folder / "sender").read_bytes()
            with outbox.claimed(NOW) as third:
                assert not third
            assert (outbox.folder / "sender").read_bytes() == taken


def test_of_two_that_see_a_gone_sender_the_slower_one_gives_the_claim_back(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox.begin(["command"], NOW)
    claim = outbox.folder / "sender"
    claim.write_text("{}", encoding="utf-8")
    os.utime(claim, (NOW, NOW))
    later, rename = NOW + CLAIM_S + 1, os.rename

    def overtaken(source: Path, target: Path) -> None:
        """Between the look at the claim and its removal another one takes it over."""
        claim.write_text("theirs", encoding="utf-8")
        os.utime(claim, (later, later))
        rename(source, target)

    monkeypatch.setattr(os, "rename", overtaken)
    with outbox.claimed(later) as ours:
        assert not ours
    assert claim.read_text(encoding="utf-8") == "theirs"
    assert [path.name for path in outbox.folder.iterdir() if path.name != "since"] == ["sender"]


def test_a_damaged_file_of_the_outbox_costs_what_it_held_and_nothing_else(outbox: Outbox) -> None:
    outbox.begin(["command"], NOW)
    outbox.add([notice(1), notice(2)])
    (outbox.folder / "new" / "fail-1.json").write_bytes(b'{"key": "fa')
    assert [one.key for one in outbox.open_notices("command")] == ["fail-2"]
    (since,) = (outbox.folder / "since").iterdir()
    since.write_bytes(b"{")
    assert outbox.open_notices("command") == [], "what it holds may have been told"
    assert outbox.begin(["command"], NOW + 5) == NOW + 5
    (outbox.folder / "tried").mkdir()
    for path in ("tried", "new"):
        (outbox.folder / path / f"{since.name}.json").write_bytes(b"\0")
    assert outbox.tried("command") is None and outbox.is_due("command", NOW, 300)


def test_an_address_that_is_not_noted_yet_is_told_nothing(outbox: Outbox) -> None:
    outbox.add([notice(1)])
    assert outbox.open_notices("env:NEW") == []


# A command that notes what it was told, and kills its sender where the file `kill` says so.
TOLD = """
import json, os, pathlib, signal, sys
here = pathlib.Path(sys.argv[1])
message = json.load(sys.stdin)
with open(here / "told", "a") as file:
    file.write(" ".join(one["key"] for one in message["notices"]) + "\\n")
try:
    (here / "kill").rename(here / "killed")
except FileNotFoundError:
    sys.exit(0)
os.kill(os.getppid(), signal.SIGKILL)
"""

SENDER = "from vtjobs.orchestrator.notices.send import main; raise SystemExit(main())"


def _senders(folder: Path, count: int) -> None:
    words = ["--workspace", str(folder / "runs"), "--folder", str(folder)]
    processes = [
        subprocess.Popen([sys.executable, "-c", SENDER, *words], stdin=subprocess.DEVNULL)
        for _ in range(count)
    ]
    for process in processes:
        process.wait(timeout=60)


def _told(folder: Path) -> list[str]:
    return (folder / "told").read_text(encoding="utf-8").split()


@pytest.fixture
def with_command(tmp_path: Path, outbox: Outbox) -> Path:
    (tmp_path / "told.py").write_text(TOLD, encoding="utf-8")
    command = f"{sys.executable} {tmp_path}/told.py {tmp_path}"
    (tmp_path / "vtjobs.yaml").write_text(f"notify: {{command: {command!r}}}\n", encoding="utf-8")
    outbox.begin(["command"], NOW)
    outbox.add([notice(1), notice(2)])
    return tmp_path


def test_of_many_senders_at_once_one_sends(with_command: Path) -> None:
    _senders(with_command, 4)
    assert _told(with_command) == ["fail-1", "fail-2"]


def test_a_sender_that_is_killed_after_sending_loses_nothing_and_doubles_one_message(
    with_command: Path, outbox: Outbox
) -> None:
    (with_command / "kill").touch()
    _senders(with_command, 1)
    assert (outbox.folder / "sender").exists() and len(outbox.open_notices("command")) == 2
    _senders(with_command, 1)
    assert _told(with_command) == ["fail-1", "fail-2"], "the claim still holds"
    os.utime(outbox.folder / "sender", (NOW, NOW))
    _senders(with_command, 3)
    assert _told(with_command) == ["fail-1", "fail-2"] * 2
    assert outbox.open_notices("command") == []

"""After a pass: put what has happened into the outbox, and start what sends it."""

import os
import subprocess
from pathlib import Path

from ...db.ledger import Ledger
from ...jobs.config.config import Config
from ...jobs.config.interpreter import module_command
from ...jobs.config.notices import NoticeSettings, display, notice_settings
from ...jobs.units import format_duration, plural
from ..backends.local.secrets import hand_secrets, secrets
from .happened import notices
from .outbox import Outbox

# Senders of this process that may still be at work.
_senders: list["subprocess.Popen[bytes]"] = []


def post(config: Config, ledger: Ledger, *, now: float) -> None:
    """Note what has happened, and let it be sent; nothing where nobody is to be told."""
    settings = notice_settings(config.get("notify"))
    if not settings.addresses:
        return
    outbox = Outbox(config.workspace)
    since = outbox.begin(settings.addresses, now)
    outbox.add(
        notices(ledger, config.workspace, settings, since=since, now=now, where=config.where)
    )
    is_due = any(
        outbox.is_due(address, now, settings.every_s) and outbox.open_notices(address)
        for address in settings.addresses
    )
    _senders[:] = [one for one in _senders if one.poll() is None]
    if is_due and not _senders:
        _senders.append(_start(config, settings))


def unsent(config: Config, *, now: float) -> list[str]:
    """Say which notices did not reach their address."""
    settings = notice_settings(config.get("notify"))
    outbox = Outbox(config.workspace)
    found = []
    for address in settings.addresses:
        last = outbox.tried(address)
        if last is None or not last.failures:
            continue
        count = plural(len(outbox.open_notices(address)), "notice")
        found.append(
            f"{count} could not be sent to {display(address)}: {last.error} (last tried "
            f"{format_duration(now - last.at)} ago). Try: vtjobs notify --test{config.where}"
        )
    return found


def _start(config: Config, settings: NoticeSettings) -> "subprocess.Popen[bytes]":
    # Handed on through a pipe: an environment can be read by other processes of the user.
    named = {one.removeprefix("env:") for one in settings.to if one.startswith("env:")}
    handed = secrets() | {name: os.environ[name] for name in named if name in os.environ}
    process = subprocess.Popen(
        [
            *module_command("vtjobs.orchestrator.notices.send"),
            *("--workspace", str(config.workspace.root)),
            *("--folder", str(config.folder or Path.cwd())),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    hand_secrets(process, handed)
    return process

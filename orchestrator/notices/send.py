"""Send what lies in the outbox.

python -m vtjobs.orchestrator.notices.send --workspace DIR --folder DIR

A process of its own: a service that does not answer holds up nobody's pass.
"""

import argparse
import json
import logging
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ...jobs.config.config import load_config
from ...jobs.config.notices import COMMAND, NoticeSettings, notice_settings
from ...jobs.documents import to_plain
from ...jobs.errors import BadInput, VtjobsError
from ..backends.local.secrets import take_secrets
from .message import Message, message_of
from .outbox import Outbox, Tried

# A command that takes longer is ended.
COMMAND_S = 30.0


class NotSent(VtjobsError):
    """A message did not reach its address; the text has no secret."""


def send(
    outbox: Outbox,
    settings: NoticeSettings,
    *,
    environ: Mapping[str, str],
    now: float,
    only_due: bool = True,
) -> dict[str, Tried]:
    """Tell each address what it has not been told; return the tries of this call.

    Args:
        outbox: of the workspace.
        settings: the addresses.
        environ: where `env:NAME` is looked up.
        now: seconds since 1970.
        only_due: whether an address that was told, or failed, a moment ago is left for later.
    """
    found: dict[str, Tried] = {}
    with outbox.claimed(now) as is_ours:
        if not is_ours:
            return {}
        for address in settings.addresses:
            notices = outbox.open_notices(address)
            if not notices or (only_due and not outbox.is_due(address, now, settings.every_s)):
                continue
            error = error_of(address, message_of(notices), settings, environ)
            last = outbox.tried(address)
            failures = 0 if not error else (last.failures if last else 0) + 1
            tried = Tried(at=now, failures=failures, error=error, host=socket.gethostname())
            outbox.put_down(address, () if error else notices, tried)
            found[address] = tried
    return found


def deliver(
    address: str, message: Message, settings: NoticeSettings, environ: Mapping[str, str]
) -> None:
    """Send one message to one address.

    Raises:
        NotSent: it did not get there.
    """
    if address == COMMAND:
        _run(settings.command, message)
        return
    try:
        import apprise
    except ImportError:
        raise NotSent("apprise is not installed. Run: pip install 'vtjobs[notify]'") from None
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    service = apprise.Apprise()
    for url in urls_of(address, environ):
        if not service.add(url):
            raise NotSent(f"{address.partition(':')[0]}: not a URL that apprise knows")
    if not service.notify(title=message.title, body=message.body, body_format="text"):
        raise NotSent(f"no answer, or a refusal (sent from {socket.gethostname()})")


def urls_of(address: str, environ: Mapping[str, str]) -> list[str]:
    """Return the URLs behind an address.

    Raises:
        NotSent: the variable is not set here, or others may read the file.
    """
    kind, _, name = address.partition(":")
    if kind == "env":
        if not environ.get(name):
            raise NotSent(f"the variable {name} is not set on {socket.gethostname()}")
        return environ[name].split()
    if kind != "file":
        return [address]
    path = Path(name).expanduser()
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotSent(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise NotSent(f"{path}: others may read it. Run: chmod 600 {path}")
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def error_of(
    address: str, message: Message, settings: NoticeSettings, environ: Mapping[str, str]
) -> str:
    """Send one message to one address; return why it did not get there, or nothing."""
    try:
        deliver(address, message, settings, environ)
    except NotSent as error:
        return str(error)
    # A service's plug-in may raise anything, and its text may hold the URL.
    except Exception as error:
        return f"{type(error).__name__} while sending"
    return ""


def _run(command: tuple[str, ...], message: Message) -> None:
    text = json.dumps(to_plain(message))
    try:
        done = subprocess.run(
            command, input=text, text=True, timeout=COMMAND_S, capture_output=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotSent(
            f"{command[0]}: {getattr(error, 'strerror', None) or 'took too long'}"
        ) from None
    if done.returncode:
        raise NotSent(f"{command[0]}: exit code {done.returncode}")


def main() -> int:
    """Parse the command line and send."""
    parser = argparse.ArgumentParser(prog="vtjobs.orchestrator.notices.send")
    parser.add_argument("--workspace", required=True)
    parser.add_argument(
        "--folder", type=Path, required=True, help="where vtjobs.yaml is looked for"
    )
    options = parser.parse_args()
    # Not in the environment that it was started with, which others may read.
    os.environ.update(take_secrets())
    try:
        config = load_config({"workspace": options.workspace}, folder=options.folder)
        settings = notice_settings(config.get("notify"))
    except BadInput:
        return 2
    send(Outbox(config.workspace), settings, environ=os.environ, now=time.time())
    return 0


if __name__ == "__main__":
    sys.exit(main())

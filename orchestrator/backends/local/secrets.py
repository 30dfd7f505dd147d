"""What the queue's passes need of whoever started it, and nobody may read: the ledger's password.

It goes from process to process through a pipe. An environment can be read by other processes of the
user for as long as a process lives, and is inherited.
"""

import contextlib
import json
import os
import subprocess
import sys

from ....jobs.config.host import scrubbed_names


def secrets() -> dict[str, str]:
    """Return the variables of this process that no process of its queue has."""
    return {name: os.environ[name] for name in scrubbed_names()}


def hand_secrets(process: "subprocess.Popen[bytes]", variables: dict[str, str]) -> None:
    """Write them to a new process, which calls `take_secrets`."""
    assert process.stdin is not None
    # One that is gone already needs none.
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(json.dumps(variables).encode())


def take_secrets() -> dict[str, str]:
    """Read what `hand_secrets` wrote."""
    text = sys.stdin.read()
    found: dict[str, str] = json.loads(text) if text else {}
    return found

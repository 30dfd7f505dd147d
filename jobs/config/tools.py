"""Ask a worker's tool something in a process of its own: what it needs takes seconds to import."""

import json
import subprocess
from typing import Any

from ..documents import to_plain
from ..errors import VtjobsError
from .host import clean_environment
from .interpreter import module_command


class NoAnswer(VtjobsError):
    """A tool gave no answer; the text says why."""


def ask_tool(name: str, question: Any, *, timeout_s: float) -> Any:
    """Return what `vtjobs.workers.tools.<name>` answers on stdout to a question on stdin, as JSON.

    Args:
        name: of the module.
        question: a document, or documents by any key.
        timeout_s: how long it may take.

    Raises:
        NoAnswer: it failed, or took too long.
    """
    command = module_command(f"vtjobs.workers.tools.{name}")
    try:
        done = subprocess.run(
            command,
            input=json.dumps(to_plain(question)).encode(),
            capture_output=True,
            timeout=timeout_s,
            check=True,
            env=clean_environment(),
        )
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NoAnswer(last or f"exit code {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"no answer within {timeout_s:.0f} s") from None
    return json.loads(done.stdout)

"""A pager for what is longer than a terminal's screen."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable

from .screen import Seen, captured, fills_screen, leave

# As git has it: what fits is left on the screen, colours stay, and so does the text at the end.
LESS = "FRX"


def paged(show: Callable[[], None]) -> None:
    """Print something, through a pager where a person watches and it does not fit the screen.

    `PAGER` names another pager than less; empty, or cat: none.
    """
    pager = _pager()
    if not pager:
        show()
        return
    seen = captured(show)
    if seen.text.count("\n") < shutil.get_terminal_size().lines:
        leave(seen)
        return
    _through(pager, seen)


def _pager() -> list[str]:
    """Return the pager's command, or nothing where there is none or nobody to use it."""
    # In what is shown again and again, stdout is another stream.
    watched = sys.stdout is sys.__stdout__ and sys.stdin.isatty() and fills_screen()
    try:
        words = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:
        # A quotation mark without its end.
        return []
    if not watched or not words or words == ["cat"] or not shutil.which(words[0]):
        return []
    return words


def _through(pager: list[str], seen: Seen) -> None:
    environ = {"LESS": LESS, "LV": "-c"} | os.environ
    with subprocess.Popen(pager, stdin=subprocess.PIPE, env=environ, text=True) as process:
        assert process.stdin is not None
        # Who has seen enough ends the pager before it has read all.
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            process.stdin.write(seen.text)
            process.stdin.close()
        while process.poll() is None:
            # Ctrl-C in a pager ends a search, and not the pager.
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
    leave(Seen("", seen.remarks, seen.at))

"""A real terminal of 100 columns and 40 lines, with a shell in it: tmux."""

import os
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .lab import wait_for

COLUMNS, LINES = 100, 40
PROMPT = "$"
PATIENCE_S = 240.0


def is_there() -> bool:
    """Whether this machine has tmux."""
    return shutil.which("tmux") is not None


class Terminal:
    """One terminal, and what somebody at it types and sees."""

    def __init__(self, server: str) -> None:
        self._server = server

    def tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self._server, "-f", "/dev/null", *words]
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout

    def screen(self) -> str:
        """Return what is on the screen; a line that was wrapped is one line."""
        lines = self.tmux("capture-pane", "-p", "-J").split("\n")
        return "\n".join(line.rstrip() for line in lines).rstrip()

    def enter(self, line: str) -> None:
        """Type a line on an empty screen."""
        if self.screen() != PROMPT:
            self._send("clear")
        self._until(lambda screen: screen == PROMPT)
        self._send(line)
        # The prompt that is seen next is that of the next line.
        self._until(lambda screen: screen != PROMPT)

    def _send(self, line: str) -> None:
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def type(self, text: str) -> None:
        """Type a text and no Enter."""
        self.tmux("send-keys", "-l", text)

    def press(self, key: str) -> None:
        """Press a key, as tmux calls it."""
        self.tmux("send-keys", key)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.tmux("send-keys", "C-c")

    def until(self, text: str) -> str:
        """Wait until a text is on the screen; return the screen."""
        return self._until(lambda screen: text in screen)

    def result(self) -> str:
        """Wait until the shell asks for the next command; return the screen."""
        return self._until(lambda screen: screen.rpartition("\n")[2] == PROMPT)

    def _until(self, is_so: Callable[[str], bool]) -> str:
        seen = ""

        def look() -> bool:
            nonlocal seen
            seen = self.screen()
            return is_so(seen)

        try:
            wait_for(look, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; on the screen:\n{seen}") from None
        return seen


@contextmanager
def a_terminal(folder: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    """Open a terminal in a folder, with vtjobs on its path."""
    terminal = Terminal(f"vtjobs-{uuid.uuid4().hex[:12]}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = {**environment, "PATH": path, "PS1": f"{PROMPT} ", "TERM": "screen", "NO_COLOR": "1"}
    exports = [f"{name}={value}" for name, value in shown.items()]
    shell = shlex.join(["env", "-i", *exports, "bash", "--norc", "--noprofile"])
    size = ("-x", str(COLUMNS), "-y", str(LINES))
    terminal.tmux("new-session", "-d", *size, "-c", str(folder), shell)
    try:
        wait_for(lambda: terminal.screen() == PROMPT, PATIENCE_S)
        yield terminal
    finally:
        terminal.tmux("kill-server")

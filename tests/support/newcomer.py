"""The first hour of somebody new: what a terminal shows them, step by step.

    python -m tests.support.newcomer      write tests/golden/newcomer.txt anew, after an intended
    change

Ids, times, numbers and paths are replaced by what they are.
"""

import re
import socket
import tempfile
from pathlib import Path

from ..conftest import end_processes
from .cli import Cli
from .grids import tiny_grid
from .tmux import Terminal, a_terminal

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "newcomer.txt"

HEAD = """\
import torch


class Boom(torch.nn.Module):
    def __init__(self, grids):
        super().__init__()

    def forward(self, grids, generator, places=None):
        wanted = 17
        raise ValueError(f"3 patches where {wanted} were expected")
"""


def transcript(folder: Path, cache: Path) -> str:
    """Play the hour; return what was on the screen after each step."""
    user = Cli(folder, cache)
    user.write("boom.py", HEAD)
    user.write("good.yaml", tiny_grid(name="good", seeds="1", epochs=2))
    user.write(
        "bad.yaml",
        tiny_grid(name="bad", seeds="1", heads="[boom.py:Boom: {weight: 1.0}]", extra="retries: 1"),
    )
    user.write("long.yaml", tiny_grid(name="long", seeds="1", epochs=5000))
    with a_terminal(folder, user.environment()) as terminal:
        return normalised(folder, "\n\n".join(_steps(terminal)) + "\n")


def _steps(terminal: Terminal) -> list[str]:
    seen = []

    def enter(line: str) -> None:
        terminal.enter(line)
        seen.append(terminal.result())

    terminal.enter("vtjobs submit good.yaml --wait")
    terminal.until("completed (")
    terminal.interrupt()
    seen.append(terminal.result())
    enter("vtjobs wait good")
    enter("vtjobs logs -f $(vtjobs runs good -q)")
    enter("vtjobs submit bad.yaml --wait")
    enter("vtjobs failures bad")
    enter("vtjobs why $(vtjobs runs bad -q)")
    enter("vtjobs submit long.yaml")
    _until_it_runs(terminal)
    enter("vtjobs cancel long")
    enter("vtjobs wait long")
    enter("vtjobs why $(vtjobs runs long -q)")
    enter("vtjobs retry long")
    _until_it_runs(terminal)
    enter("vtjobs cancel long")
    enter("vtjobs wait long")
    enter("vtjobs status")
    return seen


def _until_it_runs(terminal: Terminal) -> None:
    terminal.enter("until vtjobs runs long | grep -q running; do :; done")
    terminal.result()


def normalised(folder: Path, text: str) -> str:
    """Replace what differs from one time to the next."""
    text = text.replace(str(folder), "DIR").replace("^C", "")
    text = text.replace(f"hosts {socket.gethostname()}", "hosts <host>")
    text = re.sub(r"\bin epoch \d+", "in epoch <number>", text)
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0][:8], f"<run{len(names) + 1}>")

    text = re.sub(r"\b(good|bad|long)-[0-9a-f]{8}\b", r"\1-<id>", text)
    text = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{8}(?:[0-9a-f]{8})?\b", named, text)
    text = re.sub(r"\b\d+h\d\dm|\b\d+m\d\ds|\b\d+s\b", "<time>", text)
    return re.sub(r"\d+\.\d+(?:e-?\d+)?|\b\d+(?= img/s)", "<number>", text)


def main() -> None:
    """Write the golden file."""
    with tempfile.TemporaryDirectory(prefix="vtjobs-newcomer-") as name:
        folder = Path(name) / "lab"
        folder.mkdir()
        try:
            GOLDEN.write_text(transcript(folder, Path(name) / "cache"))
        finally:
            end_processes(folder / "runs")


if __name__ == "__main__":
    main()

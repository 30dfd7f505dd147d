"""Draw a command and what it prints as an SVG: `python -m tests.support.picture FILE COMMAND…`."""

import io
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def draw(words: list[str]) -> str:
    """Run a command and return the picture of a terminal that shows it."""
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = (done.stdout + done.stderr).rstrip().splitlines()
    width = max(map(len, lines)) + 2
    console = Console(record=True, width=min(width, 110), file=io.StringIO())
    console.print(Text(f"$ {shlex.join(words)}", style="bold"))
    for line in lines:
        console.print(Text(line))
    return console.export_svg(title="vtjobs")


def main() -> int:
    """Write the picture of a command's output to a file."""
    target, *words = sys.argv[1:]
    Path(target).write_text(draw(words))
    return 0


if __name__ == "__main__":
    sys.exit(main())

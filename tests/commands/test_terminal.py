"""All that a command prints passes through one function, which makes it harmless."""

import ast
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from vtjobs.commands.printing import terminal

ROOT = Path(__file__).resolve().parents[2]
PRINTING = ROOT / "commands" / "printing"
# What is shown on a screen has passed through the first of the two before.
DOORS = (PRINTING / "terminal.py", PRINTING / "screen.py")
HOSTILE = "\x1bc\x1b]0;HACKED\x07\u202e\x9b2J\x7f"


def modules() -> list[Path]:
    return [ROOT / "cli.py", *sorted((ROOT / "commands").rglob("*.py"))]


def prints_itself(node: ast.AST) -> bool:
    """Return whether a node prints without the door."""
    match node:
        case ast.Call(func=ast.Name(id="print")):
            return True
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr")):
            return node.attr in ("write", "writelines", "buffer")
        case ast.Attribute(attr="echo" | "secho" | "echo_via_pager"):
            return True
        case ast.ImportFrom(module="rich.console"):
            return True
    return False


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_of_the_commands_prints_by_itself(path: Path) -> None:
    found = [node for node in ast.walk(ast.parse(path.read_text())) if prints_itself(node)]
    assert not found or path in DOORS, f"line {getattr(found[0], 'lineno', 0)}: use terminal.write"


@pytest.mark.parametrize(
    "source",
    ["print('x')", "sys.stdout.write(x)", "typer.echo(x)", "from rich.console import Console"],
)
def test_every_other_way_to_print_is_noticed(source: str) -> None:
    assert any(prints_itself(node) for node in ast.walk(ast.parse(source)))


def test_a_printed_text_moves_no_cursor_and_keeps_its_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.write(f"a{HOSTILE}\n\tb")
    assert capsys.readouterr().out == "a�c�]0;HACKED���2J�\n\tb\n"


def test_json_stays_the_text_that_it_was_and_has_no_control_character(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.emit_json({"error": HOSTILE})
    out = capsys.readouterr().out
    assert json.loads(out) == {"error": HOSTILE}
    assert all(letter == "\n" or " " <= letter <= "~" for letter in out)


def test_what_the_stream_has_no_sign_for_is_printed_with_plain_ones() -> None:
    code = "from vtjobs.commands.printing.terminal import write; write('1 ± 2 — 語')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"1 +- 2 - ?\n")


def test_a_mistyped_option_reaches_a_terminal_without_its_escapes(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "vtjobs.cli", "status", f"--{HOSTILE}"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 1 << 16):
            shown += data
    except OSError:
        # A terminal that nobody writes to any more.
        pass
    os.close(ours)
    assert process.wait() == 2 and b"HACKED" in shown
    assert not {0x1B, 0x07, 0x7F} & set(shown) and "\u202e" not in shown.decode()

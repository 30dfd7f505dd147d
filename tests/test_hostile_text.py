r"""A head whose texts would clear the screen, set the window's title and turn the writing round.

It goes through every command that shows a failure or a name of the grid.
"""

import csv
import io
from pathlib import Path

import pytest

from .support.cli import Cli
from .support.grids import tiny_grid

HOSTILE = "\x1bc\x1b]0;HACKED\x07\u202e"
# What may stand in a text, besides what can be seen.
ACTED_ON = frozenset("\x1b\x07\x9b\u202e")
HEAD = r"""
from torch import nn

class Boom(nn.Module):
    def __init__(self, grids, mode):
        super().__init__()
        print("\x1bc\x1b]0;HACKED\x07\u202e")
        self.mode = mode

    def forward(self, tokens, generator, places):
        raise ValueError("17 \x1bc\x1b]0;HACKED\x07\u202e")
"""
AXES = r'axes: {head.Boom.mode: ["=1+1\u202e", "\x1bc@"]}'
MORE = rf"""retries: 1
description: "\x1bc\x1b]0;HACKED\x07\u202e"
{AXES}
"""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Cli:
    """Two runs of such a head, which have failed."""
    cli = Cli(tmp_path_factory.mktemp("hostile"), cache)
    cli.write("boom.py", HEAD)
    heads = '["boom.py:Boom": {mode: ""}]'
    cli.write("grid.yaml", tiny_grid(heads=heads, seeds="1", extra=MORE))
    done = cli("submit", "grid.yaml", "--wait")
    assert done.returncode == 4 and not ACTED_ON & set(done.stderr), done.stderr
    return cli


def run_of(cli: Cli) -> str:
    return cli.ok("failures", "-q").split()[0]


@pytest.mark.parametrize("command", ["failures", "why", "show", "logs"])
def test_what_went_wrong_is_shown_without_its_escapes(failed: Cli, command: str) -> None:
    words = [command] if command == "failures" else [command, run_of(failed)]
    shown = failed.ok(*words)
    assert "ValueError: 17 " in shown and "HACKED" in shown
    assert not ACTED_ON & set(shown)


@pytest.mark.parametrize("command", ["failures", "why", "show"])
def test_the_line_of_the_users_own_file_is_named(failed: Cli, command: str) -> None:
    words = [command] if command == "failures" else [command, run_of(failed)]
    assert "boom.py:11" in failed.ok(*words)


@pytest.mark.parametrize("style", ["table", "markdown", "latex", "csv"])
def test_a_report_has_no_escapes(failed: Cli, style: str) -> None:
    done = failed("report", "tiny", "--format", style)
    assert "1+1" in done.stdout
    assert not ACTED_ON & set(done.stdout + done.stderr)


@pytest.mark.parametrize(
    "line",
    [
        "runs --columns head,reason,host,head.Boom.mode",
        "runs --format csv",
        "diff all tiny",
        "eff",
        "usage --by head,grid",
        "logs tiny --grep 17",
        "logs tiny --tail 3",
    ],
)
def test_no_view_of_runs_has_escapes(failed: Cli, line: str) -> None:
    done = failed(*line.split())
    assert done.returncode == 0, done.stderr
    assert not ACTED_ON & set(done.stdout + done.stderr)


def test_two_sides_are_compared_without_escapes(failed: Cli) -> None:
    first, second = failed.ok("failures", "-q").split()
    shown = failed.ok("diff", first, second)
    assert "head.params.mode" in shown and "1+1" in shown
    assert not ACTED_ON & set(shown)


def test_a_spreadsheet_computes_nothing(failed: Cli) -> None:
    cells = [
        cell
        for line in csv.reader(io.StringIO(failed.ok("report", "tiny", "--format", "csv")))
        for cell in line
    ]
    assert "'=1+1�" in cells


def test_the_page_has_no_escapes(failed: Cli) -> None:
    done = failed("report", "tiny", "--html", "page")
    assert done.returncode == 0 and not ACTED_ON & set(done.stderr), done.stderr
    text = (failed.folder / "page" / "report.html").read_text()
    assert "HACKED" in text and not ACTED_ON & set(text)
    pages = [page.read_text() for page in (failed.folder / "page").rglob("*.html")]
    assert len(pages) > 5 and not any(ACTED_ON & set(page) for page in pages)

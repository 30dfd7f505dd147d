"""The documents: links lead somewhere, commands exist, examples are valid."""

import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.load import take_in

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CHANGELOG.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def blocks(kind: str) -> list[tuple[str, str]]:
    return [
        (page.name, body)
        for page in PAGES
        for found, body in BLOCK.findall(page.read_text())
        if found == kind
    ]


def shown_commands() -> list[str]:
    found = set()
    for page in PAGES:
        for line in page.read_text().splitlines():
            found |= set(re.findall(r"(?:^\$ |^|`)(vtjobs [a-z][^`#]*)", line))
    return sorted(command.strip() for command in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@cache
def help_of(command: str) -> str:
    words = [sys.executable, "-m", "vtjobs.cli", *command.split(), "--help"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"no command {command!r}"
    return done.stdout


@pytest.mark.parametrize("command", shown_commands())
def test_every_command_in_the_documents_exists_with_its_options(command: str) -> None:
    words = shlex.split(command)[1:]
    name = (
        " ".join(words[:2])
        if words[0] in ("data", "ledger", "config") and len(words) > 1
        else words[0]
    )
    text = help_of(name)
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in text, f"{command}: no option {word}"


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_every_grid_in_the_documents_is_valid(page: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    for example in (ROOT / "docs" / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    assert take_in(str(path), changes={}, max_runs=100_000).expansion.runs


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "examples").glob("*/*.yaml")), ids=lambda path: path.parent.name
)
def test_every_example_grid_is_valid(path: Path) -> None:
    assert take_in(str(path), changes={}, max_runs=100_000).expansion.runs


@pytest.mark.parametrize("name", catalogue.grid_names())
def test_every_built_in_grid_is_valid(name: str) -> None:
    assert take_in(name, changes={}, max_runs=100_000).expansion.runs


def test_every_setting_of_the_json_documents_is_documented() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    for field in (
        "schema_version",
        "shown_state",
        "missing_seeds",
        "runs_without_history",
        "resumed_inexactly",
    ):
        assert field in page

"""The reference pages say what the command line and the schema of the grid file say."""

import re
from pathlib import Path

import pytest

from .support import paper_coverage, reference
from .support.cli import Cli

EVERY = dict(reference.commands())


def _alike(text: str) -> str:
    """Return a line without ids, numbers and the width of columns."""
    return re.sub(r"\s+", " ", re.sub(r"[0-9a-f]{8,}|\d+(?:[.,:]\d+)*", "#", text)).strip()


@pytest.mark.paper("DE-16")
@pytest.mark.parametrize("name", EVERY)
def test_every_command_stands_in_the_reference_with_its_options(name: str) -> None:
    assert reference.command_section(name, EVERY[name]) in reference.COMMANDS.read_text(), (
        "run: python -m tests.support.reference"
    )


def test_every_command_has_an_example() -> None:
    assert EVERY.keys() == reference.EXAMPLES.keys()


@pytest.mark.long
def test_every_example_of_the_reference_works_and_begins_as_it_is_shown(
    tmp_path: Path, cache: Path
) -> None:
    shown = re.findall(r"^\$ (.+)\n(.*)$", reference.COMMANDS.read_text(), flags=re.M)
    first_lines = {
        name: line
        for name in EVERY
        for command, line in shown
        if f"{command} ".startswith(f"vtjobs {name} ")
    }
    wrong = []
    for name, found in reference.run_examples(Cli(tmp_path, cache)):
        line = (found.output.splitlines() or ["(nothing)"])[0]
        if found.code or _alike(line) != _alike(first_lines[name]):
            wrong.append(f"{found.command}: exit {found.code}, {line}")
    assert wrong == []


def test_the_keys_of_a_grid_file_are_those_of_its_schema() -> None:
    assert reference.KEYS.read_text() == reference.keys_page(), (
        "run: python -m tests.support.reference"
    )


@pytest.mark.paper("RM-11", "PC-14", "D3-12", "D3-15")
def test_the_page_about_the_papers_is_that_of_their_records_and_the_ready_grids() -> None:
    assert paper_coverage.PAGE.read_text() == paper_coverage.page(), (
        "run: python -m tests.support.paper_coverage"
    )


def test_every_key_of_a_grid_file_has_a_meaning() -> None:
    rows = [row.split(" | ") for row in reference.KEYS.read_text().splitlines() if "| `" in row]
    assert [row[0] for row in rows if row[-1].strip(" |") == ""] == []

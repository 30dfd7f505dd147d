"""Ids, stored grids and JSON documents are what they were.

Other programs, and older workspaces, rely on them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.run.spec import RunSpec, seeds_text

from .support import golden
from .support.cli import Cli

IDENTITIES: dict[str, Any] = json.loads(golden.IDENTITIES.read_text())
DOCUMENTS: dict[str, Any] = json.loads(golden.DOCUMENTS.read_text())


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("golden")
    return dict(golden.documents(Cli(folder, cache), golden.furnish(folder)))


def test_every_built_in_grid_has_an_identity_on_file() -> None:
    assert sorted(IDENTITIES) == sorted(catalogue.grid_names())


@pytest.mark.paper(
    "DR-20",
    "DR-22",
    "DR-34",
    "DR-35",
    "DR-36",
    "DR-38",
    "DR-54",
    "DR-55",
    "DR-56",
    "RV-20",
    "RV-22",
    "RV-24",
    "GR-08",
    "DE-01",
    "DE-02",
    "CA-10",
    "CA-15",
    "RM-04",
    "PC-06",
    "D3-04",
    "D3-06",
    "D3-08",
    "D3-18",
)
@pytest.mark.parametrize("name", IDENTITIES)
def test_a_built_in_grid_expands_to_the_same_runs_and_is_stored_as_before(
    name: str, tmp_path: Path
) -> None:
    assert golden.identity(name, tmp_path) == IDENTITIES[name]


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_description_of_every_cell_of_a_built_in_grid_is_read_back(name: str) -> None:
    expansion = take_in(name).expansion
    for run in {run.cell: run for run in expansion.runs}.values():
        cell = expansion.cells[run.cell]
        text = cell.spec.text(seeds=seeds_text(1), init_from=run.parent)
        assert RunSpec.parse(text).canonical() == text


@pytest.mark.paper("VA-16")
@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_command_prints_the_same_json_as_before(command: str, documents: dict[str, Any]) -> None:
    assert documents[command] == DOCUMENTS[command]

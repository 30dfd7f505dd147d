"""Conditions on the axes of grids, and what is said where a selection means nothing."""

from pathlib import Path
from typing import Any

import pytest

from vtjobs.db import selected
from vtjobs.db.engine import reading
from vtjobs.jobs.errors import BadInput, NothingMatched
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.stored_grid import FrozenGrid

from ..support.ledgers import World, paper_grid

AXES: list[dict[str, Any]] = [
    {"train.lr": 0.001, "train.betas": [0.9, 0.99], "variant": "plain"},
    {"train.lr": 0.01, "train.betas": [0.9, 0.999], "variant": "no mixup"},
    {"train.lr": 10, "train.nesterov": True, "train.clip": None},
]


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """SQLite alone: the axes are compared in Python."""
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture
def swept(world: World) -> World:
    """A grid of three cells with axes and two seeds each, and one without axes."""
    world.submit(with_axes(paper_grid("swept", cells=3, seeds=2)))
    world.submit(paper_grid("plain", cells=1, seeds=1, first_cell=3))
    return world


def with_axes(grid: FrozenGrid) -> FrozenGrid:
    cells = [changed(cell, axes=axes) for cell, axes in zip(grid.cells, AXES, strict=True)]
    return changed(grid, cells=cells)


def ids(world: World, *words: str) -> list[str]:
    with reading(world.ledger.engine) as connection:
        return selected.select_ids(connection, parse_selection(words))


def of_cells(*numbers: int) -> list[str]:
    runs = paper_grid("swept", cells=3, seeds=2).runs
    return sorted(run[0] for run in runs if run[1] in numbers)


@pytest.mark.parametrize(
    ("word", "cells"),
    [
        ("train.lr=0.001", (0,)),
        ("train.lr=1e-3", (0,)),
        ("train.lr=.001,1e1", (0, 2)),
        ("train.lr=10.0", (2,)),
        ("train.betas=[0.9,0.999]", (1,)),
        ("variant=no mixup", (1,)),
        ("train.nesterov=true", (2,)),
        ("train.clip=null", (2,)),
    ],
)
def test_a_value_of_an_axis_selects_its_cells_and_numbers_are_compared_as_numbers(
    swept: World, word: str, cells: tuple[int, ...]
) -> None:
    assert ids(swept, word) == of_cells(*cells)


@pytest.mark.parametrize("length", [4, 9, 16])
def test_a_run_and_a_cell_are_selected_by_the_beginning_of_their_ids(
    swept: World, length: int
) -> None:
    grid = paper_grid("swept", cells=3, seeds=2)
    run, cell = grid.runs[0][0], grid.cells[1].cell_id
    assert ids(swept, f"run={run[:length]}") == [run]
    assert ids(swept, f"cell={cell[:length]}") == of_cells(1)
    assert ids(swept, "swept", f"cell!={cell[:length]}") == of_cells(0, 2)


def test_three_characters_of_an_id_select_nothing(swept: World) -> None:
    run = paper_grid("swept", cells=3, seeds=2).runs[0][0]
    with pytest.raises(NothingMatched):
        ids(swept, f"run={run[:3]}")


def test_a_value_of_an_axis_can_be_left_out_and_narrowed(swept: World) -> None:
    assert ids(swept, "swept", "train.lr!=0.001") == of_cells(1, 2)
    assert ids(swept, "train.lr!=0.001,0.01") == sorted([*of_cells(2), *ids(swept, "plain")])
    assert len(ids(swept, "train.lr=0.01", "seed=1")) == 1


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("hed=drloc", "hed=drloc: unknown field 'hed'. Did you mean 'head'? Allowed: "),
        ("lr!=0.1,1", "lr!=0.1,1: unknown field 'lr'. Did you mean 'train.lr'? Allowed: "),
        ("train.lrr=0.1", "Did you mean 'train.lr'?"),
    ],
)
def test_an_unknown_field_is_bad_input_with_the_nearest(swept: World, word: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        ids(swept, word)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["head=drlc"],
            "head=drlc: no run has this head."
            " Did you mean 'drloc'? Known: drloc, relvit, supervised",
        ),
        (["train.lr=0.002"], "train.lr=0.002: no run has this train.lr. Known: 0.001, 0.01, 10"),
        (["seed=99"], "seed=99: no run has this seed. Known: 0, 1"),
        (["swep"], "no run and no grid 'swep'. Did you mean 'swept'? Grids: "),
        (["grid=swep"], "no grid 'swep'. Did you mean 'swept'? Grids: "),
        (["grid!=swep"], "no grid 'swep'. Did you mean 'swept'? Grids: "),
        (["plain", "head=drloc"], "no run matches plain head=drloc"),
        (["stage=x"], "stage=x: no run has this stage"),
    ],
)
def test_a_selection_of_nothing_names_what_there_is_and_the_nearest(
    swept: World, words: list[str], says: str
) -> None:
    with pytest.raises(NothingMatched) as caught:
        ids(swept, *words)
    assert str(caught.value).startswith(says)


def test_a_mistyped_run_id_is_answered_with_the_one_that_begins_alike(swept: World) -> None:
    run_id = ids(swept, "plain")[0]
    typed = run_id[:7] + ("0" if run_id[7] != "0" else "1")
    with pytest.raises(NothingMatched, match=f"Did you mean '{run_id[:8]}'?"):
        ids(swept, typed)


def test_an_empty_ledger_says_so(world: World) -> None:
    with pytest.raises(NothingMatched, match="there are no runs yet"):
        ids(world, "all")
    with pytest.raises(NothingMatched, match="No grid was submitted yet"):
        ids(world, "swept")


def test_fields_and_values_are_those_of_the_ledger(swept: World) -> None:
    with reading(swept.ledger.engine) as connection:
        assert selected.fields(connection)[-5:] == [
            "train.betas", "train.clip", "train.lr", "train.nesterov", "variant",
        ]  # fmt: skip
        assert selected.values(connection, "train.lr") == ["0.001", "0.01", "10"]
        assert selected.values(connection, "train.betas") == ["[0.9,0.999]", "[0.9,0.99]"]
        assert selected.values(connection, "seed") == ["0", "1"]
        assert selected.values(connection, "grid")[:2] == ["swept", "plain"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["swept"], ["swept"]),
        (["swept", "plain", "seed=0"], ["swept", "plain"]),
        (["grid=plain"], ["plain"]),
        (["grid!=plain"], []),
        (["all"], []),
        (["head=drloc"], []),
    ],
)
def test_a_selection_tells_which_grids_it_names(
    swept: World, words: list[str], named: list[str]
) -> None:
    with reading(swept.ledger.engine) as connection:
        found = selected.named_grids(connection, parse_selection(words))
        run_id = ids(swept, "plain")[0]
        assert selected.named_grids(connection, parse_selection(["swept", run_id])) == []
    assert [grid_id.rpartition("-")[0] for grid_id in found] == named

"""More seeds for just the cells that need them, with the runs that they start from."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.grid.expansion import Expansion
from vtjobs.jobs.grid.load import take_in_document
from vtjobs.jobs.strict_yaml import Document
from vtjobs.orchestrator.requests.topup import chooser, left_out, seeds_of_cells

GRID: dict[str, Any] = {
    "name": "more",
    "backbones": ["vit_mini", "swin_mini"],
    "datasets": ["digits"],
    "heads": ["supervised", {"drloc": {"weight": 0.5}}],
    "seeds": [0, 2],
    "recipe": "quickstart",
}
CHAIN = {
    **{key: value for key, value in GRID.items() if key != "heads"},
    "stages": [
        {"name": "pretrain", "heads": ["relvit", "supervised"]},
        {"name": "finetune", "heads": ["supervised"], "init_from": "pretrain"},
    ],
}


def expand(grid: dict[str, Any], **changes: Any) -> Expansion:
    return take_in_document(Document(file="grid.yaml", data={**grid, **changes})).expansion


def topped_up(grid: dict[str, Any], wanted: dict[str, int]) -> Expansion:
    target = seeds_of_cells(expand(grid), wanted, {})
    every = sorted({seed for seeds in target.values() for seed in seeds})
    return chooser(target)(expand(grid, seeds=every))


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_each_cell_gets_as_many_seeds_as_it_needs_and_keeps_its_own(numbers: list[int]) -> None:
    before = expand(GRID)
    ids = [cell.cell_id for cell in before.cells]
    after = topped_up(GRID, dict(zip(ids, numbers, strict=True)))
    assert {run.run_id for run in before.runs} <= {run.run_id for run in after.runs}
    for cell_id, number in zip(ids, numbers, strict=True):
        seeds = [run.seed for run in after.runs if after.cells[run.cell].cell_id == cell_id]
        assert len(seeds) == max(2, number)
        assert sorted(seeds) == [0, 2, *range(3, 3 + max(0, number - 2))]


def test_the_runs_that_the_new_ones_start_from_come_along() -> None:
    before = expand(CHAIN)
    last = next(cell for cell in before.cells if cell.stage == "finetune")
    after = topped_up(CHAIN, {last.cell_id: 5})
    new = {run.run_id for run in after.runs} - {run.run_id for run in before.runs}
    assert len(new) == 2 * 3
    by_id = {run.run_id: run for run in after.runs}
    for run in after.runs:
        assert run.parent is None or run.parent in by_id


def test_nothing_wanted_is_the_grid_itself() -> None:
    assert [run.run_id for run in topped_up(GRID, {}).runs] == [
        run.run_id for run in expand(GRID).runs
    ]


@given(st.lists(st.sets(st.integers(0, 9)), min_size=4, max_size=4))
def test_of_a_stored_grid_the_ledger_says_which_cells_have_which_seeds(
    seeds: list[set[int]],
) -> None:
    # Its text has the seeds that any cell was given.
    wide = expand(GRID, seeds=list(range(10)))
    ids = [cell.cell_id for cell in wide.cells]
    known = dict(zip(ids, seeds, strict=True))
    wanted = {cell_id: len(own) + 1 for cell_id, own in known.items()}
    for cell_id, found in seeds_of_cells(wide, wanted, known, stored=True).items():
        assert len(found) == len(known[cell_id]) + 1 and known[cell_id] < set(found)


def test_of_a_stored_chain_only_the_runs_that_are_begun_from_come_along() -> None:
    wide = expand(CHAIN, seeds=list(range(6)))
    last = {cell.labels["head"]: cell.cell_id for cell in wide.cells if cell.stage == "finetune"}
    known = {cell.cell_id: [0, 1] for cell in wide.cells if cell.stage == "finetune"}
    assert len(last) == 2
    target = seeds_of_cells(wide, {}, known, stored=True)
    assert len(chooser(target)(wide).runs) == len(known) * 2 * 2


def test_a_seed_that_the_grid_does_not_give_is_named() -> None:
    grid = {**GRID, "seeds": 3, "exclude": [{"head": "drloc", "seed": 2}]}
    first = next(cell for cell in expand(grid).cells if cell.labels["head"].startswith("drloc"))
    target = seeds_of_cells(expand(grid), {first.cell_id: 3}, {})
    wider = chooser(target)(expand(grid, seeds=[0, 1, 2]))
    label = " ".join(first.labels[name] for name in ("backbone", "dataset", "head"))
    assert left_out(wider, target) == [f"{label} seed 2"]
    assert left_out(expand(GRID), seeds_of_cells(expand(GRID), {}, {})) == []


def test_a_cell_that_only_a_file_has_keeps_its_seeds() -> None:
    both = expand(GRID)
    first = both.cells[0].cell_id
    found = seeds_of_cells(both, {}, {first: [0, 7]})
    assert found[first] == [0, 2, 7] and all(
        seeds == [0, 2] for name, seeds in found.items() if name != first
    )

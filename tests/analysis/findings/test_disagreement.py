"""How often classifiers choose different classes for the same images."""

import itertools
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from vtjobs.analysis.findings.disagreement import disagreements, rate
from vtjobs.analysis.output.disagreement_table import as_csv, of_disagreement
from vtjobs.analysis.output.layout import markdown
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.paths import Workspace

from ...support.cells import cell
from ...support.training import run_spec

CLASSES = st.integers(0, 3)
PAIRS = st.integers(1, 30).flatmap(
    lambda size: st.tuples(*[st.lists(CLASSES, min_size=size, max_size=size)] * 3)
)


@given(PAIRS)
def test_rates_of_disagreement_are_a_distance(found: tuple[list[int], ...]) -> None:
    one, other, third = map(numpy.array, found)
    assert rate(one, one) == 0 and rate(one, other) == rate(other, one)
    assert rate(one, third) <= rate(one, other) + rate(other, third) + 1e-9


def _runs(workspace: Workspace, seeds: dict[int, list[int]], *, val: float = 0) -> dict[int, str]:
    """Write what completed runs leave: of each seed the classes it chose, where 0 is right."""
    found = {}
    for seed, chosen in seeds.items():
        spec = run_spec(seed=seed)
        if val:
            spec = changed(spec, dataset=changed(spec.dataset, val=val))
        folder = workspace.run(spec.run_id)
        place = folder.checkpoints(1) / "step-000000004"
        place.mkdir(parents=True)
        folder.spec.write_text(spec.canonical())
        journal = JournalWriter(folder.journal(1, 0))
        journal.write("start", at=0.0, attempt=1, resumed_attempt=None, resumed_step=None)
        journal.write("end", at=1.0, state="completed")
        journal.close()
        classes = numpy.array(chosen, numpy.int16)
        name = "val" if val else "test"
        save_file({name: classes}, place / "chosen.safetensors")
        bits = numpy.packbits(classes == 0)
        save_file({name: bits}, place / "correct.safetensors", {name: str(len(classes))})
        found[seed] = spec.run_id
    return found


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs").create()


@pytest.mark.paper("VA-21")
def test_methods_are_compared_over_all_pairs_of_their_seeds(workspace: Workspace) -> None:
    ids = _runs(workspace, {0: [0, 0, 0, 1], 1: [0, 0, 1, 1], 2: [2, 0, 0, 1]})
    cells = [
        cell("supervised", [], run_ids={seed: ids[seed] for seed in (0, 1)}),
        cell("drloc", [], run_ids={2: ids[2]}),
    ]
    (table,) = disagreements(workspace, cells).tables
    assert table.images == 4
    # Seeds 0 and 1 differ on one image; seed 2 differs from seed 0 on one, from seed 1 on two.
    assert table.rates == [[25.0, 37.5], [37.5, None]]
    assert [one.error for one in table.classifiers] == [37.5, 50.0]
    assert [one.seeds for one in table.classifiers] == [[0, 1], [2]]


def test_runs_of_one_seed_are_told_apart_from_those_of_different_seeds(
    workspace: Workspace,
) -> None:
    """They begin alike: with them, two methods would seem to differ less than two seeds of one."""
    ids = _runs(workspace, {0: [0, 0, 0, 1], 1: [0, 0, 1, 1]})
    cells = [cell(head, [], run_ids=ids) for head in ("one", "the same again")]
    (table,) = disagreements(workspace, cells).tables
    assert table.rates == [[25.0, 25.0], [25.0, 25.0]]
    assert table.same_seed == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.paper("DE-14")
def test_the_table_of_single_runs_is_symmetric_with_a_diagonal_of_zeros(
    workspace: Workspace,
) -> None:
    chosen = {0: [0, 0, 0, 1], 1: [0, 0, 1, 1], 2: [2, 0, 0, 1]}
    cells = [cell("supervised", [], run_ids=_runs(workspace, chosen))]
    (table,) = disagreements(workspace, cells, by_run=True).tables
    rates = numpy.array(table.rates)
    assert (rates == rates.T).all() and not rates.diagonal().any()
    for (a, one), (b, other) in itertools.combinations(chosen.items(), 2):
        assert rates[a, b] == 100 * sum(x != y for x, y in zip(one, other, strict=True)) / 4


def test_cells_without_predictions_or_with_other_images_by_seed_are_told(
    workspace: Workspace,
) -> None:
    held = cell("held", [], set="val", run_ids=_runs(workspace, {0: [0, 1], 1: [0, 0]}, val=0.2))
    none = cell("none", [], set="val", run_ids={5: run_spec(seed=5).run_id})
    found = disagreements(workspace, [held, none])
    assert found.tables == []
    assert [one.why for one in found.without] == [
        "each seed holds out different images",
        "no completed run has stored predictions",
    ]


def test_columns_bear_the_numbers_of_the_rows(workspace: Workspace) -> None:
    ids = _runs(workspace, {0: [0, 0, 0, 1], 1: [0, 0, 1, 1]})
    cells = [cell(head, [], run_ids={seed: ids[seed]}) for seed, head in enumerate(("one", "two"))]
    (table,) = disagreements(workspace, cells).tables
    laid = of_disagreement(table, [])
    assert laid.heading[-3:] == ["error", "1", "2"]
    assert [row[0] for row in laid.body] == ["1", "2"]
    assert [row[-3:] for row in laid.body] == [["25.00", "", "25.00"], ["50.00", "25.00", ""]]
    assert "| 25.00 |" in markdown(laid)
    lines = as_csv([table]).splitlines()
    assert len(lines) == 5 and lines[2].endswith(",25.0,") and lines[1].endswith(",,0.0")

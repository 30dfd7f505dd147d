"""Results from elsewhere in a workspace: stored whole, counted where they are asked for."""

import re

import pytest

from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.cells import report
from vtjobs.analysis.output.notes import notes
from vtjobs.db.rebuild import rebuild
from vtjobs.jobs.errors import BadInput, NothingMatched
from vtjobs.jobs.imports.layout import Layout
from vtjobs.jobs.run.comparing import Select
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace import stored_grid
from vtjobs.orchestrator.requests import actions, deletion
from vtjobs.orchestrator.requests.import_runs import Import, Wanted, prepare_import, store_import
from vtjobs.orchestrator.requests.imported_check import imported_seeds
from vtjobs.orchestrator.requests.topup import seeds_of_cells
from vtjobs.orchestrator.views.details import show
from vtjobs.orchestrator.views.runs import runs

from ...support.grids import TINY_BACKBONE, tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab

HEADING = "backbone,dataset,head,seed,top1\n"
TWO_CELLS = HEADING + "vit,pets,supervised,0,70\nvit,pets,supervised,1,71\nvit,pets,aux,0,75\n"
TINY = TINY_BACKBONE.partition(":")[0]


def wanted(lab: Lab, text: str = TWO_CELLS, *, name: str = "old", **more: object) -> Wanted:
    path = lab.root.parent / f"{name}.csv"
    path.write_text(text)
    return changed(Wanted(paths=[path]), **more)  # type: ignore[arg-type]


def imported(lab: Lab, text: str = TWO_CELLS, **more: object) -> Import:
    found = prepare_import(lab.context, wanted(lab, text, **more))  # type: ignore[arg-type]
    store_import(lab.context, found)
    return found.summary


def cells(lab: Lab, *names: str) -> list[Cell]:
    return report(lab.context.ledger, parse_selection(list(names)))


def test_the_results_are_reported_as_any_others_and_marked(quiet_lab: Lab) -> None:
    summary = imported(quiet_lab)
    assert (summary.runs, summary.new, summary.metrics) == (3, 3, ["test/top1"])
    supervised, aux = cells(quiet_lab, "old")
    assert supervised.values == {0: 70, 1: 71} and supervised.imported_seeds == [0, 1]
    assert aux.gain == 4.5
    # No epoch is named: nothing is said of a best one.
    assert aux.best_minus_last is None
    assert "3 runs were imported" in " ".join(notes([supervised, aux]))


def test_no_imported_run_is_ever_started(quiet_lab: Lab) -> None:
    imported(quiet_lab, HEADING + "vit,pets,aux,0,\nvit,pets,aux,1,nan\nvit,pets,aux,2,70\n")
    quiet_lab.tick()
    assert sorted(quiet_lab.states().values()) == ["completed", "completed", "diverged"]
    done = actions.retryable(quiet_lab.context, list(quiet_lab.states()), clean=True)
    assert not done.run_ids and "was imported" in " ".join(done.passed_over.values())
    assert not list(quiet_lab.context.workspace.local_queue().glob("queue/*"))


def test_what_has_no_score_is_missing_and_what_is_not_finite_diverged(quiet_lab: Lab) -> None:
    summary = imported(quiet_lab, HEADING + "v,p,a,0,\nv,p,a,1,nan\nv,p,a,2,70\n")
    assert (summary.cells[0].without_score, summary.cells[0].diverged) == ([0], [1])
    (cell,) = cells(quiet_lab, "old")
    assert (cell.values, cell.missing_seeds, cell.diverged_seeds) == ({2: 70}, [0, 1], [1])


def test_the_epochs_of_a_run_make_a_curve_and_a_best_epoch(quiet_lab: Lab) -> None:
    text = "backbone,dataset,head,seed,epoch,val/top1,test/top1\n"
    imported(quiet_lab, text + "v,p,supervised,0,1,80,60\nv,p,supervised,0,2,70,65\n")
    (cell,) = cells(quiet_lab, "old")
    assert (cell.values, cell.epochs) == ({0: 65}, [2])
    chosen = report(quiet_lab.context.ledger, parse_selection(["old"]), select=Select.BEST_VAL)
    assert chosen[0].values == {0: 60}


def test_a_run_tells_where_it_is_from(quiet_lab: Lab) -> None:
    imported(quiet_lab)
    (first, *_) = runs(quiet_lab.context, parse_selection(["old"]))
    assert (first.state, first.shown_state) == ("completed", "imported")
    details = show(quiet_lab.context, first.run_id)
    assert details.imported is not None and details.imported.endswith("old.csv:2")
    assert details.spec == {}


def test_a_ledger_that_is_made_anew_has_them_too(quiet_lab: Lab) -> None:
    imported(quiet_lab)
    before = cells(quiet_lab, "old")
    quiet_lab.lose_ledger()
    rebuild(quiet_lab.context.ledger, quiet_lab.context.workspace)
    assert cells(quiet_lab, "old") == before


def test_what_was_cut_off_before_the_ledger_is_done_by_the_next_import(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(quiet_lab.context.ledger), "add_grid", killed)
        with pytest.raises(KeyboardInterrupt):
            imported(quiet_lab)
    assert imported(quiet_lab).new == 3
    assert imported(quiet_lab).new == 0
    assert len(cells(quiet_lab, "old")) == 2


def test_an_import_that_was_cut_off_is_no_longer_hidden_when_another_takes_its_name(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(quiet_lab.context.ledger), "add_grid", killed)
        with pytest.raises(KeyboardInterrupt):
            imported(quiet_lab)
    corrected = TWO_CELLS.replace(",70", ",60")
    with pytest.raises(BadInput, match="there is a grid old already") as caught:
        imported(quiet_lab, corrected)
    (cut_off,) = re.findall(r"vtjobs delete (\S+)", str(caught.value))
    deletion.delete(quiet_lab.context, deletion.find(quiet_lab.context, [cut_off]))
    imported(quiet_lab, corrected)
    quiet_lab.lose_ledger()
    rebuild(quiet_lab.context.ledger, quiet_lab.context.workspace)
    assert cells(quiet_lab, "dataset=pets")[0].values == {0: 60, 1: 71}


def test_a_path_that_is_no_text_is_stored_as_one(quiet_lab: Lab) -> None:
    folder = quiet_lab.root.parent / "many"
    folder.mkdir()
    (folder / "b\udcff.csv").write_text(TWO_CELLS)
    store_import(quiet_lab.context, prepare_import(quiet_lab.context, Wanted(paths=[folder])))
    quiet_lab.lose_ledger()
    rebuild(quiet_lab.context.ledger, quiet_lab.context.workspace)
    assert len(cells(quiet_lab, "many")) == 2


def test_several_forms_are_all_named(quiet_lab: Lab) -> None:
    path = quiet_lab.root.parent / "more.json"
    path.write_text('{"backbone": "b", "dataset": "pets", "head": "aux", "seed": 1, "top1": 70}')
    first = wanted(quiet_lab).paths[0]
    found = prepare_import(quiet_lab.context, Wanted(paths=[first, path])).summary
    assert (found.form, found.runs, found.name) == ("csv, json", 4, "old")


def test_a_damaged_file_of_results_is_named(quiet_lab: Lab) -> None:
    summary = imported(quiet_lab)
    path = quiet_lab.context.workspace.grid(summary.grid_id) / "imported.json"
    path.write_text("{")
    with pytest.raises(
        stored_grid.DamagedFile, match=r"imported\.json is damaged.*import the files"
    ):
        stored_grid.read_grid(quiet_lab.context.workspace, summary.grid_id)


def test_other_results_under_a_taken_name_are_refused(quiet_lab: Lab) -> None:
    grid_id = imported(quiet_lab).grid_id
    with pytest.raises(BadInput, match=f"there is a grid old already.*vtjobs delete {grid_id}"):
        imported(quiet_lab, TWO_CELLS + "vit,pets,aux,1,76\n")
    assert imported(quiet_lab, TWO_CELLS + "vit,pets,aux,1,76\n", name="new").runs == 4


def test_a_name_that_no_grid_can_have_is_refused(quiet_lab: Lab) -> None:
    with pytest.raises(BadInput, match=r"my results.*use letters.*--name NAME"):
        imported(quiet_lab, name="my results")


def test_records_are_chosen_by_their_values_and_incomplete_ones_left_out(quiet_lab: Lab) -> None:
    text = "backbone,dataset,head,seed,top1,state\n"
    text += "v,p,a,0,70,finished\nv,p,a,1,71,crashed\nv,p,a,,72,finished\n"
    summary = imported(quiet_lab, text, only={"state": "finished"}, skip_incomplete=True)
    assert (summary.runs, summary.left_out) == (1, 1)
    with pytest.raises(NothingMatched, match="no record has what --only asks for"):
        imported(quiet_lab, text, only={"state": "running"})


# Into a grid --------------------------------------------------------------------------------------


@pytest.fixture
def trained(quiet_lab: Lab) -> Lab:
    """A workspace whose grid has one head with one completed seed."""
    (run,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run, 1, started(), scored(90.0), ended("completed"))
    quiet_lab.tick()
    return quiet_lab


def test_old_seeds_count_in_a_grid_s_cell_where_both_are_named(trained: Lab) -> None:
    imported(trained, HEADING + f"{TINY},digits,supervised,7,80\n", into="tiny")
    (alone,) = cells(trained, "tiny")
    assert alone.values == {0: 90}
    (both,) = cells(trained, "tiny", "old")
    assert both.values == {0: 90, 7: 80} and both.imported_seeds == [7]
    assert both.cell_id == alone.cell_id


def test_a_seed_that_the_cell_has_is_refused(trained: Lab) -> None:
    text = HEADING + f"{TINY},digits,supervised,0,80\n"
    with pytest.raises(BadInput, match=r"has runs of these seeds already: 0\. Number them apart"):
        imported(trained, text, into="tiny")


def test_a_run_that_fits_no_cell_is_refused(trained: Lab) -> None:
    with pytest.raises(BadInput, match="tiny has no cell with vit pets supervised"):
        imported(trained, into="tiny")
    with pytest.raises(NothingMatched):
        imported(trained, into="absent")


def test_the_last_stage_of_a_grid_gets_the_seeds(quiet_lab: Lab) -> None:
    stages = "stages: [{name: pre}, {name: fine, init_from: pre}]"
    quiet_lab.submit(tiny_grid(seeds="1", extra=stages))
    with pytest.raises(BadInput, match="tiny has no cell with"):
        imported(quiet_lab, HEADING + f"{TINY},digits,supervised,7,80\n", into="tiny")
    text = HEADING + f"{TINY},digits,supervised-then-supervised,7,80\n"
    summary = imported(quiet_lab, text, into="tiny")
    (cell,) = cells(quiet_lab, "tiny", "old")
    assert (cell.stage, cell.imported_seeds) == ("fine", [7])
    assert summary.cells[0].cell_id == cell.cell_id


@pytest.mark.parametrize("written", ["0.1", "1e-1", "0.10"])
def test_a_cell_is_found_by_an_axis_however_its_number_is_written(
    quiet_lab: Lab, written: str
) -> None:
    quiet_lab.submit(tiny_grid(seeds="1", extra="axes: {train.weight_decay: [0.1, 0.2]}"))
    text = HEADING.strip() + f",train.weight_decay\n{TINY},digits,supervised,7,80,{written}\n"
    layout = Layout(axes=("train.weight_decay",))
    summary = imported(quiet_lab, text, into="tiny", layout=layout)
    assert summary.cells[0].axes == {"train.weight_decay": "0.1"}


def test_a_grid_does_not_grow_into_seeds_that_were_imported(trained: Lab) -> None:
    imported(trained, HEADING + f"{TINY},digits,supervised,1,80\n", into="tiny")
    with pytest.raises(BadInput, match=r"seeds: .* imported runs are of seeds 1\. Give the"):
        trained.submit(tiny_grid(seeds="2"))
    (cell,) = cells(trained, "tiny")
    assert seeds_of_cells(
        trained.prepare(tiny_grid(seeds="1")).expansion,
        {cell.cell_id: 3},
        {},
        taken=imported_seeds(trained.context, [cell.cell_id]),
    ) == {cell.cell_id: [0, 2, 3]}


def test_pairs_of_an_imported_and_a_trained_run_are_told(trained: Lab) -> None:
    imported(trained, HEADING + f"{TINY},digits,supervised,1,80\n", into="tiny")
    (mixed,) = cells(trained, "tiny", "old")
    other = changed(mixed, imported_seeds=[0])
    assert not mixed.is_mixed_with(other)
    assert mixed.is_mixed_with(other, by_seed=True)
    assert not mixed.is_mixed_with(mixed, by_seed=True)

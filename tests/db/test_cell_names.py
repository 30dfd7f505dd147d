"""Two grids with the same cells, each under the names of its own file."""

import pytest
from sqlalchemy import delete, select

from vtjobs.analysis.findings.cells import report
from vtjobs.db import models as m
from vtjobs.db import queries
from vtjobs.db.engine import reading, writing
from vtjobs.db.records import RunRow
from vtjobs.db.upgrade import upgrade
from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.housekeeping.ledger_upkeep import rebuild_ledger
from vtjobs.orchestrator.requests import actions, deletion

from ..support.grids import tiny_grid
from ..support.lab import Lab

FIRST = tiny_grid(name="first", seeds="1", extra="variants: {usual: {}, longer: {train.epochs: 3}}")
SECOND = tiny_grid(name="second", seeds="1", epochs=3, extra="variants: {three: {}}")


@pytest.fixture
def two_grids(quiet_lab: Lab) -> Lab:
    first = quiet_lab.submit(FIRST)
    assert set(quiet_lab.submit(SECOND)) < set(first), "its one run is one of the first grid's"
    return quiet_lab


def runs(lab: Lab, *names: str, **conditions: str) -> list[RunRow]:
    selection = Selection(names=names)
    for field, value in conditions.items():
        selection = selection.narrowed(field, value)
    with reading(lab.context.ledger.engine) as connection:
        return queries.list_runs(connection, selection)


def variants(lab: Lab, *names: str) -> list[str]:
    return [str(row.axes["variant"]) for row in runs(lab, *names)]


def test_a_run_that_two_grids_have_is_listed_under_the_names_of_the_grid_that_is_asked_for(
    two_grids: Lab,
) -> None:
    assert sorted(variants(two_grids, "first")) == ["longer", "usual"]
    assert variants(two_grids, "second") == ["three"]


def test_a_grids_runs_are_in_its_own_order_whichever_grids_have_them_since(quiet_lab: Lab) -> None:
    names = ("usual", "longer", "longest")
    epochs = dict(zip(names, (2, 3, 4), strict=True))

    def submit(name: str, kept: tuple[str, ...]) -> None:
        lines = [f"  {one}: {{train.epochs: {epochs[one]}}}" for one in kept]
        quiet_lab.submit(tiny_grid(name=name, seeds="1", extra="\n".join(["variants:", *lines])))

    submit("first", names)
    for number, kept in enumerate((names[1:2], names[:1], names[2:])):
        submit(f"later{number}", kept)
        assert variants(quiet_lab, "first") == list(names)


def test_a_report_has_the_names_of_its_grid(two_grids: Lab) -> None:
    (cell,) = report(two_grids.context.ledger, Selection(names=("second",)))
    assert cell.axes == {"variant": "three"}


def test_of_several_grids_the_names_of_the_newest_hold(two_grids: Lab) -> None:
    assert sorted(variants(two_grids, "first", "second")) == ["three", "usual"]


@pytest.mark.parametrize("name", ["longer", "three"])
def test_a_condition_finds_a_run_by_each_of_its_names(two_grids: Lab, name: str) -> None:
    (run,) = runs(two_grids, variant=name)
    assert run.run_id == runs(two_grids, "second")[0].run_id


def test_a_rebuilt_ledger_has_the_same_names(two_grids: Lab) -> None:
    rebuild_ledger(two_grids.context.config, progress=lambda what, count: None)
    assert variants(two_grids, "second") == ["three"]


def test_names_that_an_older_ledger_did_not_keep_are_taken_from_the_stored_grids(
    two_grids: Lab,
) -> None:
    engine = two_grids.context.ledger.engine
    with writing(engine) as connection:
        connection.execute(delete(m.cell_names))
    assert variants(two_grids, "second") == ["longer"]
    upgrade(engine, two_grids.context.workspace)
    assert variants(two_grids, "second") == ["three"]


def test_a_deleted_grid_leaves_the_other_its_names(two_grids: Lab) -> None:
    actions.cancel(two_grids.context, [row.run_id for row in runs(two_grids)])
    deletion.delete(two_grids.context, deletion.find(two_grids.context, ["first"]))
    assert variants(two_grids) == variants(two_grids, "second") == ["three"]


def test_names_that_are_those_of_the_first_grid_take_no_row(two_grids: Lab) -> None:
    with reading(two_grids.context.ledger.engine) as connection:
        assert len(connection.execute(select(m.cell_names)).all()) == 1

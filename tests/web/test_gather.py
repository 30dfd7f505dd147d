"""What the pages show."""

from vtjobs.jobs.run.selector import parse_selection
from vtjobs.orchestrator.views.eta import etas
from vtjobs.web.addresses import Address, Kind
from vtjobs.web.documents import (
    Activity,
    CellPage,
    Failures,
    GridPage,
    Overview,
    PageDocument,
    RunPage,
    Usage,
    plain_chart,
)
from vtjobs.web.gather import Source, document_of

from ..support.grids import tiny_grid
from ..support.journals import ended, journal, scored, started
from ..support.lab import Lab


def shown(half_done: Lab, kind: Kind, name: str = "", words: str = "") -> PageDocument | None:
    selection = parse_selection(words.split(), default_all=True)
    context = half_done.open()
    source = Source(context=context, selection=selection, left=etas(context, selection))
    return document_of(source, Address(kind, name))


def grid_of(half_done: Lab) -> GridPage:
    first = shown(half_done, Kind.OVERVIEW)
    assert isinstance(first, Overview)
    found = shown(half_done, Kind.GRID, first.status.grids[0].grid_id)
    assert isinstance(found, GridPage)
    return found


def test_the_overview_counts_the_runs_of_each_grid(half_done: Lab) -> None:
    found = shown(half_done, Kind.OVERVIEW)
    assert isinstance(found, Overview)
    (grid,) = found.status.grids
    assert (grid.name, grid.runs["completed"], found.failed) == ("tiny", 2, 1)


def test_a_grid_has_heads_across_with_the_baseline_first(half_done: Lab) -> None:
    found = grid_of(half_done)
    assert found.heads == ["supervised", "relvit"]
    (row,) = found.rows
    supervised, relvit = row.cells
    assert supervised and relvit
    assert (supervised.n, supervised.planned, supervised.mean) == (2, 2, 61.0)
    assert (relvit.n, relvit.planned, relvit.mean) == (0, 2, None)


def test_nothing_is_compared_while_runs_are_to_come(half_done: Lab) -> None:
    assert grid_of(half_done).comparison is None


def test_a_grid_that_has_ended_is_compared(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(heads="[supervised, relvit]", seeds="3"))
    quiet_lab.tick()
    for number, run_id in enumerate(runs):
        journal(quiet_lab, run_id, 1, started(), scored(60.0 + number), ended("completed"))
    quiet_lab.tick(start=False)
    found = grid_of(quiet_lab).comparison
    assert found is not None and "verdict" in found.heading and len(found.body) == 1


def test_a_cell_has_a_mean_with_a_band_and_its_seeds(half_done: Lab) -> None:
    cell = grid_of(half_done).rows[0].cells[0]
    assert cell is not None
    found = shown(half_done, Kind.CELL, cell.cell_id)
    assert isinstance(found, CellPage) and found.chart is not None
    mean, *seeds = plain_chart(found.chart)["lines"]
    assert mean["values"] == [61.0] and mean["low"][0] < 61.0 < mean["high"][0]
    assert [line["values"] for line in seeds] == [[60.0], [62.0]]
    assert {run.top1 for run in found.runs} == {60.0, 62.0}


def test_a_run_has_its_attempts_logs_and_the_end_of_the_newest(half_done: Lab) -> None:
    (failed,) = [run for run, state in half_done.states().items() if state == "failed"]
    found = shown(half_done, Kind.RUN, failed)
    assert isinstance(found, RunPage)
    assert [(log.attempt, log.name) for log in found.logs] == [(1, "rank-0.log")]
    assert found.tail[0] == "first" and found.tail[-1] == "last"
    assert found.run.attempts[0].message.startswith("Error: 7")


def test_what_waits_and_what_failed_is_listed(half_done: Lab) -> None:
    found, failures = shown(half_done, Kind.ACTIVITY), shown(half_done, Kind.FAILURES)
    assert isinstance(found, Activity) and isinstance(failures, Failures)
    assert [(group.title, group.total) for group in found.groups] == [("Queued", 1)]
    assert [group.runs for group in failures.groups] == [1]


def test_usage_is_by_grid_and_by_user(half_done: Lab) -> None:
    found = shown(half_done, Kind.USAGE)
    assert isinstance(found, Usage)
    assert [one.runs for one in found.by_grid] == [one.runs for one in found.by_user] == [3]


def test_what_is_not_selected_has_no_page(half_done: Lab) -> None:
    cells = grid_of(half_done).rows[0].cells
    assert cells[0] and cells[1]
    assert shown(half_done, Kind.CELL, cells[0].cell_id, "head=supervised") is not None
    assert shown(half_done, Kind.CELL, cells[1].cell_id, "head=supervised") is None
    other = next(run for run, state in half_done.states().items() if state == "failed")
    assert shown(half_done, Kind.RUN, other, "head=supervised") is None
    assert shown(half_done, Kind.GRID, "other-00000000") is None


def test_an_empty_workspace_has_pages(quiet_lab: Lab) -> None:
    for kind in (Kind.OVERVIEW, Kind.ACTIVITY, Kind.FAILURES, Kind.USAGE):
        assert shown(quiet_lab, kind) is not None

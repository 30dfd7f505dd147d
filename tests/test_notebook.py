"""Results in Python: what `vtjobs.load` returns, and what it leaves alone."""

import subprocess
import sys
from typing import Any

import pytest

import vtjobs
from vtjobs.jobs.errors import BadInput, NothingMatched, VtjobsError
from vtjobs.notebook import EpochValues, Records, Results

from .support.grids import tiny_grid
from .support.journals import ended, journal, scored, started
from .support.lab import Lab
from .support.notebooks import executed


@pytest.fixture
def trained(quiet_lab: Lab) -> Lab:
    """Two heads with two seeds each, of two epochs; the last run has not started."""
    runs = quiet_lab.submit(tiny_grid(heads="[supervised, relvit]", seeds="2"))
    quiet_lab.tick()
    for number, run_id in enumerate(runs[:3]):
        first, second = scored(50.0 + number, epoch=1), scored(60.0 + number, epoch=2)
        losses = [
            ("epoch", {"epoch": epoch, "step": 8 * epoch, "metrics": {"train_loss": 1.0 / epoch}})
            for epoch in (1, 2)
        ]
        events = [losses[0], first, losses[1], second]
        journal(quiet_lab, run_id, 1, started(), *events, ended("completed"))
    quiet_lab.tick()
    return quiet_lab


def of(lab: Lab, *words: str) -> Results:
    return vtjobs.load(*words, workspace=str(lab.root))


def test_runs_and_cells_are_the_documents_of_the_command_line(trained: Lab) -> None:
    found = of(trained, "tiny")
    assert [run.top1 for run in found.runs] == [60.0, 61.0, 62.0, None]
    assert [(cell.head, cell.n, cell.mean) for cell in found.cells] == [
        ("supervised", 2, 60.5),
        ("relvit", 1, 62.0),
    ]


def test_epochs_and_evaluations_have_a_record_for_each_run_and_epoch(trained: Lab) -> None:
    found = of(trained)
    run_ids = [run.run_id for run in found.runs]
    assert [(one.run_id, one.epoch) for one in found.evaluations] == [
        (run_id, epoch) for run_id in run_ids[:3] for epoch in (1, 2)
    ]
    assert [one.values["train_loss"] for one in found.epochs[:2]] == [1.0, 0.5]
    assert {one.set for one in found.epochs} == {"training"}


def test_curves_and_comparisons_are_those_of_the_commands(trained: Lab) -> None:
    found = of(trained)
    first, _ = found.curves()
    assert [point.mean for point in first.points] == [50.5, 60.5]
    (comparison,) = found.compare().comparisons
    assert comparison.head == "relvit"
    assert found.compare(alpha=0.01).alpha == 0.01
    with pytest.raises(BadInput, match="margn"):
        found.compare(margn=1.0)
    with pytest.raises(BadInput, match="at most"):
        found.compare(alpha=5)


def test_a_selection_is_made_of_the_words_of_the_command_line(trained: Lab) -> None:
    assert len(of(trained, "tiny", "head=relvit").runs) == 2
    with pytest.raises(NothingMatched):
        of(trained, "nonsense")
    with pytest.raises(VtjobsError, match="is not a vtjobs workspace"):
        vtjobs.load(workspace=str(trained.root / "elsewhere"))


def test_reading_starts_nothing_and_takes_nothing_in(trained: Lab) -> None:
    waiting = of(trained).runs[3].run_id
    journal(trained, waiting, 1, started(), scored(99.0), ended("completed"))
    before = {path: path.stat().st_mtime_ns for path in trained.root.rglob("*.json*")}
    found = of(trained)
    assert found.runs[3].state == "queued" and len(found.cells) == 2
    assert {path: path.stat().st_mtime_ns for path in trained.root.rglob("*.json*")} == before
    assert trained.state(waiting) == "queued"


def test_a_frame_has_axes_and_values_as_columns() -> None:
    values = EpochValues(
        run_id="a", attempt=1, epoch=1, step=8, set="test", values={"top1": 90.0, "loss": 0.1}
    )
    frame = Records([values]).frame()
    assert [*frame.columns] == ["run_id", "attempt", "epoch", "step", "set", "top1", "loss"]
    assert frame["top1"].tolist() == [90.0]


def test_without_pandas_a_frame_is_of_polars_and_without_both_an_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, trained: Lab
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    frame = of(trained).evaluations.frame()
    assert type(frame).__module__.startswith("polars") and frame.height == 6
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        of(trained).runs.frame()


def test_what_a_notebook_shows_is_inert_and_short() -> None:
    hostile: list[Any] = [
        EpochValues(
            run_id="<script>x()</script>", attempt=1, epoch=number, step=1, set="\x1b[2J", values={}
        )
        for number in range(100)
    ]
    text = Records(hostile)._repr_html_()
    assert "<script" not in text and "\x1b" not in text
    assert text.count("<tr>") == 31 and "100 records, 30 shown" in text


def test_importing_vtjobs_imports_nothing_heavy() -> None:
    code = "import sys, vtjobs; print([m for m in ('sqlalchemy', 'msgspec', 'typer') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError):
        _ = vtjobs.nonsense


def test_the_notebook_of_the_docs_runs_from_top_to_bottom(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(name="quickstart", heads="[supervised, relvit]", seeds="3"))
    quiet_lab.tick()
    for number, run_id in enumerate(runs):
        lines = [scored(50.0 + number, epoch=1), scored(60.0 + number, epoch=2)]
        journal(quiet_lab, run_id, 1, started(), *lines, ended("completed"))
    quiet_lab.tick(start=False)
    found = executed(quiet_lab.folder)
    outputs = [output for cell in found.cells for output in cell.get("outputs", ())]
    assert [output.output_type for output in outputs].count("display_data") == 1
    assert outputs[0].data["text/plain"] == "6"
    assert "relvit" in outputs[-1].text and ": separable" in outputs[-1].text

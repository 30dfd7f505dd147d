"""What a waiting command shows: where the runs stand, and when they will have ended."""

from dataclasses import dataclass

import pytest

from vtjobs.commands.printing.terminal import Progress, eta_text
from vtjobs.db.scheduler_notes import Away
from vtjobs.jobs.run.eta import Eta
from vtjobs.jobs.run.pace import Basis
from vtjobs.orchestrator.loop.tick import Report


@dataclass(frozen=True)
class Row:
    state: str
    step: int | None = None
    steps: int | None = None


def an_eta(low_s: float | None, high_s: float | None) -> Eta:
    return Eta(low_s=low_s, high_s=high_s, basis=Basis.CELL, slots=1, unknown=0)


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [
        (700, 960, "eta 12–16 min"),
        (700, 740, "eta 12 min"),
        (None, None, "eta unknown"),
        (700, None, "eta unknown"),
    ],
)
def test_an_estimate_is_a_range_or_unknown(
    low_s: float | None, high_s: float | None, text: str
) -> None:
    assert eta_text(an_eta(low_s, high_s)) == text


def test_runs_count_by_their_steps_from_the_first_look_on() -> None:
    rows = [Row("completed"), Row("running", 30, 120), Row("running", None, 120), Row("queued")]
    line = Progress().line(rows, [row.state for row in rows])
    assert line == "1/4 completed ( 31%): 1 completed, 1 queued, 2 running"


def test_a_line_says_when_the_runs_will_have_ended_and_who_cannot_be_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report(unreachable={"slurm": Away(0.0, "no answer")})
    Progress().show([Row("queued")], ["queued"], report, an_eta(720, 960))
    said = capsys.readouterr().err
    assert said == "0/1 completed (  0%): 1 queued  eta 12–16 min  (slurm unreachable)\n"
    Progress().show([Row("completed")], ["completed"], Report(), None)
    assert capsys.readouterr().err == "1/1 completed (100%): 1 completed\n"

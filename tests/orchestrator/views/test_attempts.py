"""What the reading commands show of what attempts used."""

import json
from typing import Any

import pytest
from sqlalchemy import update

from vtjobs.commands.printing.show import lines
from vtjobs.db import models as m
from vtjobs.db.engine import writing
from vtjobs.db.gpu_hours import GpuHours
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.orchestrator.views import details as view_details
from vtjobs.orchestrator.views.status import status

from ...support.grids import tiny_grid
from ...support.journals import journal, started
from ...support.lab import Lab

USAGE: dict[str, Any] = {
    "images_per_s": 1234.4,
    "data_wait": 0.031,
    "parameters": 5_717_416,
    "peak_memory_bytes": int(6.1 * 2**30),
    "step_s": 0.829,
    "step_std_s": 0.0125,
    "gpu_utilisation": 0.874,
    "gpu_used_bytes": 7 << 30,
    "cpu_cores": 3.44,
    "host_memory_bytes": int(5.2 * 2**30),
}
NOTHING = GpuHours(useful=0.0, lost=0.0, failed=0.0, superseded=0.0)


def epoch(**usage: Any) -> tuple[str, dict[str, Any]]:
    return "epoch", {"epoch": 1, "step": 8, "metrics": {}, "usage": usage}


def shown(lab: Lab, *events: tuple[str, dict[str, Any]]) -> view_details.RunDetails:
    """Return the document of a run whose only attempt left these events."""
    (run_id,) = lab.submit(tiny_grid(seeds="1"))
    lab.tick()
    journal(lab, run_id, 1, *events)
    lab.tick()
    return view_details.show(lab.context, run_id)


def attempt_lines(document: view_details.RunDetails) -> list[str]:
    text = lines(document)
    begin = text.index("attempts") + 1
    return text[begin : text.index("", begin)]


def test_show_says_what_an_attempt_used(quiet_lab: Lab) -> None:
    found = shown(quiet_lab, started(), epoch(**USAGE))
    assert to_plain(found.attempts[0].usage) == USAGE
    assert attempt_lines(found)[1:] == [
        "     1234 img/s, waiting for data 3 %, GPU 87 %, CPU 3.4 cores, peak memory 6.1 GiB,"
        " GPU memory in use 7.0 GiB, host memory 5.2 GiB"
    ]


def test_what_is_not_known_is_null_and_left_out_of_the_text(quiet_lab: Lab) -> None:
    found = shown(quiet_lab, started(), epoch(images_per_s=90.0, cpu_cores=0.0))
    known = {"images_per_s": 90.0, "cpu_cores": 0.0}
    assert to_plain(found.attempts[0].usage) == dict.fromkeys(USAGE) | known
    assert attempt_lines(found)[1:] == ["     90 img/s, CPU 0.0 cores"]


def test_an_attempt_of_an_older_agent_has_no_line_of_it(quiet_lab: Lab) -> None:
    found = shown(quiet_lab, started(), ("epoch", {"epoch": 1, "step": 8, "metrics": {}}))
    assert found.attempts[0].usage is None and len(attempt_lines(found)) == 1
    assert found.attempts[0].gpu_hours == NOTHING


def test_an_attempt_that_has_not_started_has_no_line_of_it(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    found = view_details.show(quiet_lab.context, run_id)
    assert (found.attempts[0].usage, found.attempts[0].gpu_hours) == (None, NOTHING)
    assert len(attempt_lines(found)) == 1


@pytest.fixture
def spent(quiet_lab: Lab) -> list[str]:
    """Two runs on two GPUs: one failed after an hour, one was preempted half an hour after its
    checkpoint of the first hour.
    """
    found = quiet_lab.submit(tiny_grid(seeds="2"))
    quiet_lab.tick()
    ends = (("failed", "user_error", 3600.0), ("preempted", "stopped", 5400.0))
    for run_id, (state, failure, ended_at) in zip(found, ends, strict=True):
        folder = quiet_lab.run(run_id).attempt(1)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        writer = JournalWriter(folder / "journal-0.jsonl")
        writer.write("start", at=1e9, attempt=1)
        writer.write("checkpoint", at=1e9 + 3600, epoch=1, step=8, bytes=1)
        writer.write("end", at=1e9 + ended_at, state=state, **{"class": failure})
        writer.close()
    quiet_lab.tick(start=False)
    with writing(quiet_lab.context.ledger.engine) as connection:
        connection.execute(update(m.attempts).values(gpus=2))
    return found


def test_show_says_what_became_of_an_attempts_gpu_hours(quiet_lab: Lab, spent: list[str]) -> None:
    found = view_details.show(quiet_lab.context, spent[1])
    assert to_plain(found.attempts[0].gpu_hours) == to_plain(NOTHING) | {"useful": 2.0, "lost": 1.0}
    assert attempt_lines(found)[1] == (
        "     GPU-hours: 2.00 useful, 1.00 lost, 0.00 failed, 0.00 superseded"
    )


@pytest.mark.paper("DE-19")
def test_status_of_a_grid_sums_the_gpu_hours_of_the_selected_runs(
    quiet_lab: Lab, spent: list[str]
) -> None:
    def summed(*words: str) -> GpuHours | None:
        return status(quiet_lab.context, parse_selection(list(words))).gpu_hours

    assert summed("tiny") == GpuHours(useful=2.0, lost=1.0, failed=2.0, superseded=0.0)
    assert summed("tiny", "seed=0") == GpuHours(useful=0.0, lost=0.0, failed=2.0, superseded=0.0)
    assert summed("tiny", "status=completed") is None, "no run is selected"
    assert summed("all") is None, "a whole workspace may have a hundred thousand attempts"
    assert json.dumps(to_plain(status(quiet_lab.context, parse_selection(["tiny"]))))

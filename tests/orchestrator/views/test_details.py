"""All that is known of one run."""

import json

from vtjobs.commands.printing.show import lines
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.views import details as view_details

from ...support.grids import tiny_grid
from ...support.journals import journal, started
from ...support.lab import Lab

ALL = Selection()


def test_show_tells_all_of_a_run(quiet_lab: Lab, runs: list[str]) -> None:
    found = view_details.show(quiet_lab.context, runs[1])
    assert found.spec["dataset"]["name"] == "digits"
    (attempt,) = found.attempts
    assert (attempt.state, attempt.failure, attempt.exit_code) == (
        "failed",
        "user_error",
        70,
    )
    steps = [(event.before, event.after, event.source) for event in found.history]
    assert ("queued", "running", "journal") in steps and ("running", "failed", "journal") in steps
    assert json.dumps(to_plain(found))


def test_show_says_what_was_taken_of_the_weights(quiet_lab: Lab, runs: list[str]) -> None:
    weights = {"loaded": 12, "drawn": ["head.bias", "head.weight"], "unused": []}
    journal(quiet_lab, runs[3], 1, started(), ("fingerprints", {"streams": {}, "weights": weights}))
    found = view_details.show(quiet_lab.context, runs[3])
    assert "weights  12 tensors loaded; drawn: head.bias, head.weight" in lines(found)


def test_show_lists_every_grid_that_has_a_run(quiet_lab: Lab, runs: list[str]) -> None:
    quiet_lab.submit(tiny_grid(name="edit", seeds="1"))
    found = view_details.show(quiet_lab.context, runs[0])
    assert [grid_id.rpartition("-")[0] for grid_id in found.grids] == ["edit", "tiny"]
    assert found.grids[0] == found.grid_id
    assert lines(found)[0] == f"run      {runs[0]}  ({found.grids[0]}, also in {found.grids[1]})"

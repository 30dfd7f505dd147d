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


STAGES = """\
stages:
  - {name: pretrain, heads: [relvit]}
  - {name: finetune, heads: [supervised], init_from: pretrain}
"""


def test_show_says_what_a_run_took_of_the_weights_that_it_starts_from(quiet_lab: Lab) -> None:
    text = tiny_grid(seeds="1", extra=STAGES).replace("heads: [supervised]\n", "", 1)
    parent, child = quiet_lab.submit(text)
    weights = {"loaded": 12, "drawn": ["head.bias", "head.weight"], "unused": []}
    journal(quiet_lab, child, 1, started(), ("fingerprints", {"streams": {}, "weights": weights}))
    shown = lines(view_details.show(quiet_lab.context, child))
    assert "weights  12 tensors loaded; drawn: head.bias, head.weight" in shown
    assert view_details.show(quiet_lab.context, parent).weights is None


def test_show_lists_every_grid_that_has_a_run(quiet_lab: Lab, runs: list[str]) -> None:
    quiet_lab.submit(tiny_grid(name="edit", seeds="1"))
    found = view_details.show(quiet_lab.context, runs[0])
    assert [grid_id.rpartition("-")[0] for grid_id in found.grids] == ["edit", "tiny"]
    assert found.grids[0] == found.grid_id
    assert lines(found)[0] == f"run      {runs[0]}  ({found.grids[0]}, also in {found.grids[1]})"

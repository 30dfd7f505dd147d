"""Which cells a report shows of a grid with stages."""

from vtjobs.analysis.findings.cells import report
from vtjobs.jobs.run.selector import Selection

from ...support.lab import Lab

STAGES = """\
name: chain
backbones: [vit_mini]
datasets: [digits]
seeds: 1
recipe: quickstart
resources: {{gpus_per_node: 0}}
stages:
{stages}
"""


def _shown(lab: Lab, *stages: str) -> list[tuple[str, str, bool]]:
    """Return stage, head and whether there is a baseline, of each cell of the report."""
    lab.submit(STAGES.format(stages="\n".join(f"  - {stage}" for stage in stages)))
    cells = report(lab.context.ledger, Selection())
    return [(cell.stage, cell.head, cell.baseline is not None) for cell in cells]


def test_a_run_that_another_one_starts_from_is_left_out(quiet_lab: Lab) -> None:
    found = _shown(
        quiet_lab,
        "{name: pretrain, heads: [relvit, supervised]}",
        "{name: finetune, heads: [supervised], init_from: pretrain}",
    )
    assert found == [
        ("finetune", "relvit-then-supervised", True),
        ("finetune", "supervised-then-supervised", False),
    ]


def test_a_baseline_that_is_a_teacher_too_stays_and_is_compared_with(quiet_lab: Lab) -> None:
    found = _shown(
        quiet_lab,
        "{name: first, heads: [supervised]}",
        "{name: student, heads: [supervised, distill: {teacher: first}]}",
    )
    assert found == [("first", "supervised", False), ("student", "distill", True)]

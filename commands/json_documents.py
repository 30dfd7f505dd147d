"""Which document each command prints with `--json`."""

from importlib import import_module
from typing import Any

# Command -> module and type; `[]` marks a list of them.
DOCUMENTS = {
    "plan": "orchestrator.requests.summary:Summary",
    "submit": "orchestrator.requests.summary:Summary",
    "status": "orchestrator.views.status:Status",
    "runs": "orchestrator.views.runs:RunView[]",
    "show": "orchestrator.views.details:RunDetails",
    "why": "orchestrator.views.why:Explanation",
    "failures": "orchestrator.views.failures:FailureGroup[]",
    "report": "analysis.findings.cell:Cell[]",
    "report.json": "analysis.findings.gather:Report",
    "diff": "orchestrator.views.differences:Differences",
    "eff": "orchestrator.views.efficiency:Efficiency[]",
    "usage": "orchestrator.views.spent:Spent[]",
    "curve": "analysis.findings.curves:CellCurve[]",
    "scatter": "analysis.findings.two_sets:TwoSets[]",
    "compare": "analysis.findings.comparisons:Comparisons",
    "against": "analysis.findings.coverage:TableCoverage[]",
    "against PAPER:TABLE": "analysis.findings.against:Against",
    "variance": "analysis.findings.per_image:CellSplit[]",
    "power": "analysis.findings.power:Needs",
    "evaluate": "db.records:ResultRow[]",
    "visualize": "orchestrator.housekeeping.visualize:Visualized",
    "mcnemar": "analysis.findings.per_image:ComparedRuns",
    "disagreement": "analysis.findings.disagreement:Disagreements",
    "export": "orchestrator.housekeeping.export:Exported",
    "import": "orchestrator.requests.import_runs:Import",
    "export --to": "analysis.output.exported_curves:Exported",
    "cancel": "orchestrator.requests.actions:Done",
    "retry": "orchestrator.requests.actions:Done",
    "rerun": "orchestrator.requests.actions:Done",
    "hold": "orchestrator.requests.actions:Done",
    "release": "orchestrator.requests.actions:Done",
    "papers show": "analysis.findings.published:Published[]",
    "papers audit": "analysis.findings.published:AuditedGain[]",
    "catalog": "commands.printing.catalogue:GridEntry[]",
    "catalog RECIPE": "commands.printing.catalogue:RecipeEntry",
    "measure": "jobs.run.cost:Cost[]",
    "note": "orchestrator.requests.labels:Noted",
    "delete": "orchestrator.requests.deletion:Deletion",
    "cost": "orchestrator.views.costs:CellCost[]",
    "tag": "orchestrator.requests.labels:Tagged[]",
    "archive": "orchestrator.requests.labels:Archived",
    "notify": "orchestrator.notices.standing:AddressStanding[]",
    "gc": "orchestrator.housekeeping.gc:GarbageList",
    "doctor": "orchestrator.views.doctor:Examination",
}


def type_of(command: str) -> Any:
    """Return the type of a command's document."""
    module, _, name = DOCUMENTS[command].partition(":")
    kind = getattr(import_module(f"vtjobs.{module}"), name.removesuffix("[]"))
    return list[kind] if name.endswith("[]") else kind  # type: ignore[valid-type]

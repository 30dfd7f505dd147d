"""Hand a run's final weights to other programs, with a card of what the ledger knows of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from ...db import queries
from ...db.engine import Connection, reading
from ...db.records import RunRow
from ...jobs.config.host import clean_environment
from ...jobs.documents import Document, to_plain
from ...jobs.errors import BadInput, VtjobsError, suggest
from ...jobs.run.card_facts import CardCell, CardFacts, CardLabels, CardScore
from ...jobs.run.selector import Selection
from ...jobs.run.states import RunState
from ..loop.context import Context

FORMATS = ("timm", "safetensors", "torchvision-backbone")


class Exported(Document, frozen=True, kw_only=True, omit_defaults=False):
    """Where a run's weights were written."""

    schema_version: int = 1
    """Raised when a key is removed or changes its meaning."""
    run_id: str
    folder: str
    """Where they are."""
    format: str
    """timm, safetensors or torchvision-backbone."""


class Scored(Protocol):
    """What the card says of the run's cell."""

    @property
    def n(self) -> int: ...
    @property
    def mean(self) -> float | None: ...
    @property
    def std(self) -> float | None: ...
    @property
    def metric(self) -> str: ...


def with_weights(connection: Connection, run_id: str) -> RunRow:
    """Return a run that has final weights.

    Raises:
        BadInput: it has none.
    """
    row = queries.list_runs(connection, Selection(names=(run_id,)))[0]
    if row.is_imported:
        raise BadInput(f"run {run_id} was imported: vtjobs has its scores, and not its weights")
    if row.state != RunState.COMPLETED:
        raise BadInput(f"run {run_id} is {row.state}: only completed runs have final weights")
    return row


def export(context: Context, run_id: str, out: Path, form: str, *, cell: Scored) -> None:
    """Write a folder with the weights of a completed run.

    Args:
        context: workspace and ledger.
        run_id: the run.
        out: a folder that does not exist yet.
        form: one of FORMATS.
        cell: the report of the run's cell.

    Raises:
        BadInput: the format is unknown, the folder exists, or the run has not completed.
        VtjobsError: the weights cannot be exported; the reason went to standard error.
    """
    if form not in FORMATS:
        raise BadInput(f"--format {form}: unknown. {suggest(form, FORMATS)}")
    if out.exists():
        raise BadInput(f"{out} exists already")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"{out.absolute().parent}: no such folder")
    with reading(context.ledger.engine) as connection:
        row = with_weights(connection, run_id)
        results = queries.results_of(connection, [run_id])
    scores = [CardScore(set_name=one.set_name, metric=one.metric, last=one.last) for one in results]
    facts = CardFacts(
        grid_id=row.grid_id,
        labels=CardLabels(
            backbone=row.backbone, dataset=row.dataset, head=row.head, recipe=row.recipe
        ),
        results=sorted(scores, key=lambda score: (score.set_name, score.metric)),
        cell=CardCell(n=cell.n, mean=cell.mean, std=cell.std, metric=cell.metric),
    )
    command = [
        sys.executable,
        "-m",
        "vtjobs.workers.tools.export",
        "--workspace",
        str(context.workspace.root),
    ]
    command += ["--format", form, run_id, str(out.absolute())]
    done = subprocess.run(
        command,
        input=json.dumps(to_plain(facts)),
        text=True,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2].removeprefix("error: ")
        error = BadInput(reason) if done.returncode == BadInput.exit_code else VtjobsError(reason)
        raise error

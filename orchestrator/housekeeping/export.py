"""Hand a run's final weights to other programs, with a card of what the ledger knows of it."""

import json
from pathlib import Path
from typing import Protocol

from ...db import queries
from ...db.engine import Connection, reading
from ...db.records import RunRow
from ...jobs.documents import Document, to_plain
from ...jobs.errors import BadInput, suggest
from ...jobs.run.card_facts import CardCell, CardFacts, CardLabels, CardScore
from ...jobs.run.selector import Selection
from ...jobs.run.states import RunState
from ..loop.context import Context
from .worker_tool import run_tool

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
        VtjobsError: the weights cannot be exported; the message says why.
    """
    if form not in FORMATS:
        raise BadInput(f"--format {form}: unknown. {suggest(form, FORMATS)}")
    if out.exists():
        raise BadInput(f"{out} exists already. Name another folder, or remove it")
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
    words = ["--workspace", str(context.workspace.root), "--format", form]
    run_tool("export", [*words, run_id, str(out.absolute())], given=json.dumps(to_plain(facts)))

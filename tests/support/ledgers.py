"""A workspace and its ledger without a scheduler.

Grids that exist on paper, attempts driven by hand.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import select

from vtjobs.db import models as m
from vtjobs.db.engine import reading
from vtjobs.db.ledger import Ledger
from vtjobs.jobs.atomic_files import make_folder, to_json, touch_new, write_new
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.spec import CellSpec, canonical, digest, seeds_of
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.journal import JournalWriter, encode
from vtjobs.jobs.workspace.paths import RunFolder, Workspace
from vtjobs.jobs.workspace.stored_grid import FrozenCell, FrozenGrid, write_grid

from .grid_settings import grid_settings

HEADS = ("supervised", "drloc", "relvit")
RECIPE = Recipe.model_validate(catalogue.recipe_data("quickstart")).settings


def paper_grid(
    name: str = "paper",
    *,
    cells: int = 1,
    seeds: int = 1,
    retries: int = 3,
    at: float = 1000.0,
    first_cell: int = 0,
    stages: Sequence[str] = ("",),
    **settings: Any,
) -> FrozenGrid:
    """Return a grid as it lies in the workspace.

    Cells of a later stage start from the stage before.
    """
    made: list[FrozenCell] = []
    runs: list[tuple[str, int, int, str | None]] = []
    for number in range(first_cell, first_cell + cells):
        parents: dict[int, str] = {}
        parent_cell: int | None = None
        for stage in stages:
            cell = _cell(
                number,
                stage,
                made[parent_cell].cell_id if parent_cell is not None else None,
                parent_cell,
            )
            made.append(cell)
            parent_cell = len(made) - 1
            for seed in range(seeds):
                text = cell.spec.text(seeds=canonical(seeds_of(seed)), init_from=parents.get(seed))
                runs.append((digest(text), parent_cell, seed, parents.get(seed)))
                parents[seed] = runs[-1][0]
    stored = grid_settings(
        grid_id=f"{name}-{digest(f'{name}{cells}{seeds}{first_cell}{stages}', 8)}",
        name=name,
        submitted_at=at,
        retries=retries,
        **settings,
    )
    return FrozenGrid(settings=stored, cells=made, runs=runs)


def _cell(number: int, stage: str, parent_cell: str | None, parent: int | None) -> FrozenCell:
    head = HEADS[number % len(HEADS)]
    spec = CellSpec(
        backbone=canonical({"model": f"net_{number // len(HEADS)}", "args": {}, "weights": None}),
        dataset=canonical(to_plain(catalogue.dataset("digits"))),
        head=canonical({"name": head, "params": {}}),
        recipe=canonical(to_plain(changed(RECIPE, optimizer=f"of {stage}"))),
    )
    return FrozenCell(
        cell_id=spec.cell_id(parent_cell),
        match_id=spec.match_id(parent_cell),
        stage=stage,
        labels={
            "backbone": f"net_{number // len(HEADS)}",
            "dataset": "digits",
            "head": head,
            "recipe": "plain",
        },
        axes={},
        is_baseline=head == "supervised",
        parent=parent,
        spec=spec,
    )


def an_allocation(
    tasks: Sequence[tuple[str, int]], *, token: str, at: float = 1000.0, **task: Any
) -> Allocation:
    """Return an allocation that hosts these (run, attempt)."""
    made = tuple(
        Task(run_id=run_id, attempt=number, grid_id="paper", **task) for run_id, number in tasks
    )
    return Allocation(
        token=token,
        created_at=at,
        shape=Shape(backend="local"),
        lanes=1,
        tasks=(made,),
        data_root="data",
    )


class World:
    """A workspace with a ledger and a clock that moves one second with every look at it."""

    def __init__(self, root: Path, url: str) -> None:
        self.workspace = Workspace(root).create()
        self.url = url
        self.now = 1000.0
        self.tokens = 0
        self.writers: dict[tuple[str, int, int], JournalWriter] = {}
        self.ledger = self.open(url)

    def open(self, url: str) -> Ledger:
        identity = self.workspace.check()["id"]
        return Ledger.open(url, workspace_id=identity, create=True, clock=self.clock)

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    def folder(self, run_id: str) -> RunFolder:
        return self.workspace.run(run_id)

    def submit(self, frozen: FrozenGrid) -> list[str]:
        """Store a grid in the workspace and in the ledger; return its runs."""
        runs = self.workspace.grid(frozen.grid_id) / "runs.json"
        is_first = not runs.exists()
        write_grid(self.workspace, frozen, b"")
        if is_first:
            at = frozen.settings.submitted_at
            os.utime(runs, (at, at))
        self.ledger.add_grid(frozen)
        for run_id, *_ in frozen.runs:
            make_folder(self.folder(run_id).path)
        return [run[0] for run in frozen.runs]

    def highest(self, run_id: str) -> int:
        folder = self.folder(run_id)
        numbers = [row["number"] for row in self.rows(m.attempts) if row["run_id"] == run_id]
        return max(folder.highest_claim(), folder.highest_cancel(), *numbers, 0)

    def launch(self, *run_ids: str, accept: bool = True) -> str | None:
        """Do what a dispatch does; return the token where anything was launched."""
        state = {row["run_id"]: row for row in self.rows(m.runs)}
        self.tokens += 1
        tasks = tuple(
            Task(
                run_id=run_id,
                attempt=self.highest(run_id) + 1,
                grid_id=state[run_id]["grid_id"],
                clean=bool(state[run_id]["clean_next"]),
                micro_split=state[run_id]["micro_split"],
                parent=state[run_id]["parent"],
            )
            for run_id in run_ids
        )
        shape = Shape(backend="local")
        content = Allocation(
            token=f"vtj-{self.tokens:06d}",
            created_at=self.clock(),
            shape=shape,
            lanes=1,
            tasks=(tasks,),
            data_root="data",
        )
        opened = self.ledger.open_attempts(content, launching_s=60)
        if opened is None:
            return None
        write_new(self.workspace.allocation(opened.token), to_json(opened.to_dict()))
        if accept:
            self.ledger.accepted(opened.token, f"job-{opened.token}", source="local")
        return opened.token

    # What an agent does ---------------------------------------------------------------------------

    def writer(self, run_id: str, number: int, node: int = 0) -> JournalWriter:
        """Return the journal of an attempt on a node, made where there is none."""
        key = (run_id, number, node)
        if key not in self.writers:
            make_folder(self.folder(run_id).attempt(number))
            self.writers[key] = JournalWriter(self.folder(run_id).journal(number, node))
        return self.writers[key]

    def write(self, run_id: str, number: int, kind: str, *, node: int = 0, **fields: Any) -> None:
        self.writer(run_id, number, node).write(kind, at=self.clock(), **fields)

    def start(
        self, run_id: str, number: int = 1, *, resumed: tuple[int, int] | None = None
    ) -> None:
        """Claim a run and write the start record."""
        self.folder(run_id).claim(number)
        attempt, step = resumed or (None, None)
        self.write(
            run_id, number, "start", attempt=number, host="node7", resumed_attempt=attempt, resumed_step=step,
            world_size=1, exact=None if resumed is None else True, software={"vtjobs": "0.1", "torch": "2.6"},
        )  # fmt: skip

    def epoch(self, run_id: str, number: int, epoch: int, top1: float, *, steps: int = 10) -> None:
        """Write what one epoch leaves behind."""
        place = {"epoch": epoch, "step": (epoch + 1) * steps}
        self.write(run_id, number, "progress", **place, steps=100)
        self.write(run_id, number, "epoch", **place, metrics={"loss": 1.0 / (epoch + 1)})
        self.write(
            run_id,
            number,
            "evaluation",
            **place,
            set="test",
            metrics={"top1": top1, "loss": 2.0 - top1 / 100},
        )

    def checkpoint(self, run_id: str, number: int, step: int) -> None:
        self.write(run_id, number, "checkpoint", epoch=step // 10 - 1, step=step, bytes=1234)

    def end(
        self,
        run_id: str,
        number: int,
        state: str,
        failure: str | None = None,
        *,
        signature: str = "",
    ) -> None:
        fields = {
            "signature": signature,
            "error": "",
            "exit_code": 0,
            "epoch": None,
            "step": None,
            "rank": None,
        }
        self.write(run_id, number, "end", state=state, **{"class": failure}, **fields)

    def train(self, run_id: str, number: int = 1, *scores: float) -> None:
        """Write the journal of an attempt that completes with these scores, an epoch each."""
        self.start(run_id, number)
        for epoch, score in enumerate(scores):
            self.epoch(run_id, number, epoch, score)
        self.checkpoint(run_id, number, len(scores) * 10)
        self.end(run_id, number, "completed")

    # What a user does -----------------------------------------------------------------------------

    def cancel(self, run_id: str) -> None:
        number = self.highest(run_id) + 1
        self.folder(run_id).cancel(number)
        self.ledger.set_cancelled({run_id: number})

    def grant(self, run_id: str, *, clean: bool = False) -> None:
        number = self.highest(run_id)
        folder = make_folder(self.folder(run_id).grants)
        touch_new(folder / (f"{number:04d}-clean" if clean else f"{number:04d}"))
        self.ledger.grant_try({run_id: number}, clean=clean)

    # What the ledger says -------------------------------------------------------------------------

    def rows(self, table: Any, ledger: Ledger | None = None) -> list[dict[str, Any]]:
        """Return a table's rows, in the order of its key."""
        with reading((ledger or self.ledger).engine) as connection:
            query = select(table).order_by(*table.primary_key.columns)
            return [dict(row) for row in connection.execute(query).mappings()]

    def states(self, ledger: Ledger | None = None) -> dict[str, str]:
        return {row["run_id"]: row["state"] for row in self.rows(m.runs, ledger)}

    def attempts(self, run_id: str) -> list[dict[str, Any]]:
        return [row for row in self.rows(m.attempts) if row["run_id"] == run_id]

    def events(self, run_id: str) -> list[dict[str, Any]]:
        return [row for row in self.rows(m.events) if row["run_id"] == run_id]

    def close(self) -> None:
        for writer in self.writers.values():
            with suppress(OSError):
                writer.close()
        self.ledger.engine.dispose()


MEASURED = (m.epoch_metrics, m.evaluations, m.checkpoints, m.results, m.journals)


def measured(world: World, ledger: Ledger | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return everything that was read from journals, as one comparable value."""
    return {table.name: world.rows(table, ledger) for table in MEASURED}


def journal_bytes(events: Sequence[dict[str, Any]]) -> bytes:
    """Return the journal that holds these events, numbered from 1."""
    return b"".join(encode({"seq": seq, **event}) for seq, event in enumerate(events, 1))


def metrics_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the metrics of rows, read."""
    return [json.loads(row["metrics"]) for row in rows]

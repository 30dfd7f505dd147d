"""One cell of every ready grid, from submission to the comparison with the printed numbers.

    python -m tests.support.tiny_papers [--keep FOLDER] [GRID...]

Runs a copy of vtjobs whose catalogue is smaller: the datasets have a few generated images, in the
layouts that they are published in, 150 epochs are one, and a batch has four images. All else is as
shipped: models of full size, heads, losses, schedules, stages, commands. The scores mean nothing;
that each run finds its printed number does.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from vtjobs.analysis.findings.published import records
from vtjobs.analysis.findings.ready_grids import grids_of
from vtjobs.jobs.grid import catalogue

from .house import ROOMS
from .paper_coverage import PAPERS
from .tiny_datasets import Written, write_datasets, write_weights

ROOT = Path(__file__).resolve().parents[2]
# `against` takes two of these for no difference; batches and warm-up are alike in grids and recipes.
SMALL = {"warmup_epochs": 0, "batch_size": 4, "virtual_ranks": 2, "precision": "fp32"}
TRAIN, TEST = 4, 2
# So many of the papers' epochs are one here; the values of a grid's axis still differ.
EPOCHS, MOST_EPOCHS = 150, 6
# Pixels a side. Images with masks or objects are larger than this one, and so many here.
LARGEST, DECODED = 448, 224
# Of what these tables' grids train, the papers print no score.
WITHOUT_SCORES = ("drloc-table14", "relvit-figure4")
# These are of what the papers' texts say, and of no table.
WITHOUT_TABLE = (
    "drloc-grid-size",
    "thesis-deit3-transfer",
    "thesis-patchconvnet-seeds",
    "thesis-small-distillation",
)

# Conditions that choose a grid's cell, instead of the first one: for a small model, or for a dataset
# whose files no other grid reads.
CHOSEN = {
    "drloc-table2b": "backbone=t2t_vit_14 head=drloc",
    "drloc-table4": "backbone=resnet50_drloc dataset=svhn head=drloc",
    "drloc-table5": "backbone=resnet50 dataset=flowers102 head=drloc",
    "drloc-table6": "head=drloc(loss=reg)",
    "drloc-table7": "backbone=t2t_vit_14 head=drloc",
    "drloc-table8": "backbone=resnet50_drloc head=drloc",
    "drloc-table9": "dataset=cifar10 head=drloc",
    "thesis-cifar10": "backbone=deit_b",
    "thesis-small-distillation": "backbone=deit_ti head=distill(teacher=convnet)",
    "thesis-distilled": "backbone=deit_ti_distilled",
    "thesis-distilled-384": "backbone=deit_b_distilled",
    "thesis-cait-384": "backbone=cait_xxs24",
    "thesis-cait-distilled": "backbone=cait_xxs24",
    "thesis-cait-distilled-384": "backbone=cait_xxs24",
    "thesis-table2-15": "backbone=regnety_040 dataset=food101 variant=mlp",
    "thesis-table2-16": "dataset=cars head=grafit(projector=linear,views=4)-then-supervised variant=mlp",
    "thesis-table3-7": "dataset=cars head=distill-then-supervised",
    "thesis-table3-19": "backbone=cait_s36 dataset=inat2019 head=supervised-then-supervised",
    "thesis-table4-4": "backbone=resmlp_s12 dataset=cifar10",
    "thesis-table5-5": "backbone=patchconvnet_s60 dataset=cifar10",
    "relvit-table2": "backbone=vit_s8 dataset=tiny_imagenet head=relvit-then-supervised",
    "relvit-table4": "head=relvit(tasks=['dist'])-then-supervised",
    "relvit-table5": "dataset=flowers102_relvit head=relvit-then-supervised",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a grid's cell."""

    grid: str
    cell: str
    """Backbone, dataset and head."""
    state: str
    seconds: float
    """How long its stages took together."""
    tables: list[str]
    """PAPER:TABLE, each with a printed number that was compared with this cell's."""
    printed: float | None
    """The first of these numbers."""
    ours: float | None
    said: str
    """Why no number was compared, or nothing."""

    @property
    def is_right(self) -> bool:
        return self.state == "completed" and (
            bool(self.tables) or self.grid in (*WITHOUT_SCORES, *WITHOUT_TABLE)
        )


class Small:
    """A copy of vtjobs with a smaller catalogue, and a user of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        written = write_datasets(self.data, train=TRAIN, test=TEST)
        write_weights(self.data / "weights")
        self._copy(folder / "python" / "vtjobs", written)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VTJOBS_")},
            "PYTHONPATH": str(folder / "python"),
            "XDG_STATE_HOME": str(folder / "state"),
            "VTJOBS_DATA": str(self.data),
            "COLUMNS": "200",
        }

    def _copy(self, place: Path, written: Written) -> None:
        ignored = shutil.ignore_patterns("__pycache__")
        for room in ROOMS:
            shutil.copytree(ROOT / room, place / room, ignore=ignored)
        for file in ("__init__.py", "cli.py"):
            shutil.copy(ROOT / file, place / file)
        shipped = place / "jobs" / "catalogue"
        for path in [
            *(shipped / "grids").glob("*.yaml"),
            *(shipped / "recipes").glob("*.yaml"),
        ]:
            path.write_text(yaml.safe_dump(_shortened(yaml.safe_load(path.read_text()))))
        for path in (shipped / "papers").glob("*.jsonl"):
            rows = [_shortened(json.loads(line)) for line in path.read_text().splitlines()]
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        path = shipped / "datasets.yaml"
        datasets = yaml.safe_load(path.read_text())
        for name, (train, test) in written.counts.items():
            # A level of a taxonomy has the images of its dataset.
            if name in datasets:
                files = dict.fromkeys(datasets[name].get("files", {}), 1)
                datasets[name] |= {"train": train, "test": test, "files": files}
        path.write_text(yaml.safe_dump(datasets))
        with (place / "workers" / "data" / "datasets.py").open("a") as module:
            module.write(written.as_program())

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vtjobs.cli", *words],
            cwd=self.folder,
            env=self.environment,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )

    def ok(self, *words: str) -> str:
        done = self(*words)
        if done.returncode:
            raise SystemExit(f"vtjobs {' '.join(words)}: code {done.returncode}\n{done.stderr}")
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))


def _shortened(value: Any, key: str = "") -> Any:
    """Return a grid, a recipe or a record with fewer epochs and small batches."""
    if isinstance(value, dict):
        return {name: _shortened(part, str(name)) for name, part in value.items()}
    last = key.rpartition(".")[2]
    if isinstance(value, list):
        parts = [_shortened(part, key) for part in value]
        # Epochs that were not the same one may be now.
        return list(dict.fromkeys(parts)) if last.endswith("epochs") else parts
    if last in SMALL:
        return SMALL[last]
    if last in ("image_size", "longest_side") and isinstance(value, int) and value > LARGEST:
        return DECODED
    if last.endswith("epochs") and isinstance(value, int):
        return min(math.ceil(value / EPOCHS), MOST_EPOCHS)
    return value


def tables_of(grid: str) -> list[str]:
    """Return the tables that a ready grid has numbers of, each as PAPER:TABLE."""
    return [
        f"{paper}:{table}"
        for paper in PAPERS
        for table in dict.fromkeys(record.table for record in records(paper).values())
        if grid in grids_of(paper, table)
    ]


def scorings(grid: str) -> list[str]:
    """Return the options of the evaluations that a ready grid's file asks for after training."""
    text = (ROOT / "jobs" / "catalogue" / "grids" / f"{grid}.yaml").read_text()
    found = re.findall(rf"^#.*vtjobs evaluate {grid} (--.*)$", text, re.MULTILINE)
    return [options.replace("inat2018_genus", "inat2018") for options in found]


def play(user: Small, grids: Sequence[str]) -> Iterator[Outcome]:
    """Submit a cell of each grid, wait for all, and compare each with what is printed."""
    try:
        yield from _play(user, grids)
    finally:
        user("cancel", "all", "--yes")


def _play(user: Small, grids: Sequence[str]) -> Iterator[Outcome]:
    chosen = {}
    for number, grid in enumerate(grids, start=1):
        print(f"submit {number}/{len(grids)} {grid}", file=sys.stderr, flush=True)
        user.ok("submit", grid, "--hold", "--set", "resources.gpus_per_node=0")
        chosen[grid] = _released(user, grid)
    for number, (grid, run) in enumerate(chosen.items(), start=1):
        print(f"train {number}/{len(grids)} {grid}", file=sys.stderr, flush=True)
        user("wait", run)
        for options in scorings(grid):
            print(f"score {number}/{len(grids)} {grid} {options}", file=sys.stderr, flush=True)
            user.ok("evaluate", run, *options.split())
        user.ok("report", grid)
        yield _outcome(user, grid, run)


def _released(user: Small, grid: str) -> str:
    """Start a run of a grid and the stages before it; return its id."""
    conditions = CHOSEN.get(grid, "").split()
    runs = user.json("runs", grid, *conditions)
    last = runs[-1]["stage"]
    run = str(next(one["run_id"] for one in runs if one["stage"] == last))
    user.ok("release", *(stage["run_id"] for stage in _stages(user, run)))
    return run


def _stages(user: Small, run: str) -> list[Any]:
    """Return what `show` says of a run, and then of each stage before it."""
    found = [user.json("show", run)]
    while parent := found[-1]["parent"]:
        found.append(user.json("show", parent))
    return found


def _outcome(user: Small, grid: str, run: str) -> Outcome:
    stages = _stages(user, run)
    shown = stages[0]
    reasons, tables, pairs = [], [], []
    for table in tables_of(grid):
        done = user("against", table, grid, "--json")
        found = json.loads(done.stdout)
        if done.returncode:
            reasons.append(found["error"]["message"])
            continue
        rows = found["rows"]
        mine = [row for row in rows if row["cell_id"] == shown["cell_id"]]
        compared = [row for row in mine if row["comparable"]]
        tables += [table] * bool(compared)
        pairs += [(row["printed"], row["ours"]) for row in compared]
        reasons += [f"{table}: {row['detail']}" for row in mine if not row["comparable"]]
        reasons += [f"{table}: no number of this cell"] * (not mine)
    printed, ours = pairs[0] if pairs else (None, None)
    return Outcome(
        grid=grid,
        cell=" ".join(str(shown[name]) for name in ("backbone", "dataset", "head")),
        state=shown["state"],
        seconds=sum(stage["seconds"] or 0.0 for stage in stages),
        tables=tables,
        printed=printed,
        ours=ours,
        said="" if pairs else "; ".join(dict.fromkeys(reasons)) or "no scores are printed",
    )


def as_table(outcomes: Sequence[Outcome]) -> Table:
    """Return one line for each grid."""
    table = Table(box=None, pad_edge=False)
    for name in ("grid", "cell", "state", "compared with", "printed", "here"):
        table.add_column(name, justify="right" if name in ("printed", "here") else "left")
    for one in outcomes:
        numbers = ["" if value is None else f"{value:.2f}" for value in (one.printed, one.ours)]
        state = f"{one.state} ({one.seconds:.0f} s)"
        table.add_row(one.grid, one.cell, state, ", ".join(one.tables) or one.said, *numbers)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [name for name in catalogue.grid_names() if name != "quickstart"]
    parser.add_argument("grids", nargs="*", metavar="GRID", help="ready grids [default: all]")
    parser.add_argument("--keep", type=Path, help="folder to work in, and to leave")
    asked = parser.parse_args()
    with _folder(asked.keep) as folder:
        outcomes = list(play(Small(folder), asked.grids or sorted(known)))
        Console(width=200).print(as_table(outcomes))
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.resolve()
        return
    # What serves the workspace ends once it is gone, and may write until then.
    with tempfile.TemporaryDirectory(prefix="vtjobs-papers-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())

"""Runs of Weights & Biases that lie in a folder `wandb`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import BadInput
from .record import Record
from .tables import flat

# A run of many thousand steps is read in a few seconds.
TIMEOUT_S = 600
_INSTALL = "pip install 'vtjobs[wandb]'"


def read_wandb(path: Path) -> Iterator[Record]:
    """Yield the runs of a folder, a record for each step that was logged.

    Args:
        path: the file of a run, or any folder above such files.

    Raises:
        BadInput: W&B's own program, which alone reads its files, is not there or cannot read one.
    """
    for file in sorted(path.rglob("run-*.wandb")) if path.is_dir() else [path]:
        yield from _run(file)


def _run(file: Path) -> Iterator[Record]:
    settings: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    # A later line of a step adds to it.
    steps: dict[int, dict[str, Any]] = {}
    for line in _inspect(file).split("\n"):
        try:
            found = json.loads(line or "{}")
        except ValueError:
            raise BadInput(f"{file}: W&B's program wrote no JSON: {line[:80]}") from None
        match found.get("type"):
            case "run":
                settings |= found["run"].get("config", {}).get("update", {})
            case "config":
                settings |= found["config"].get("update", {})
            case "summary":
                summary |= found["summary"].get("update", {})
            case "history":
                item = found["history"]["item"]
                steps.setdefault(int(item.get("_step", len(steps))), {}).update(item)
    logged = {key for item in steps.values() for key in item}
    # What was written into the summary alone, as of the last step.
    alone = {key: value for key, value in summary.items() if key not in logged}
    steps.setdefault(max(steps, default=0), {}).update(alone)
    for step, item in sorted(steps.items()):
        values = {**flat(_own(settings)), **flat(_own(item))}
        yield Record(where=str(file), source=file, values=values, epoch=step)


def _own(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out what W&B itself writes down."""
    return {key: value for key, value in content.items() if not key.startswith("_")}


def _inspect(file: Path) -> str:
    """Return what W&B's program says is in a file, a JSON object in each line."""
    program = Path(sys.executable).with_name("wandb")
    command = [str(program), "leet", "inspect", "--json", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except FileNotFoundError:
        raise BadInput(f"{file}: W&B's program reads it. Install it: {_INSTALL}") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{file}: not read within {TIMEOUT_S} s") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise BadInput(f"{file}: W&B's program cannot read it ({said}). Newest: {_INSTALL} -U")
    return done.stdout

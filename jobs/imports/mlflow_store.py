"""MLflow's runs: its database file, or its folder of text files."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ..errors import BadInput
from .record import Record, Scalar

DATABASE = "mlflow.db"
_RUN = re.compile(r"^run_(uu)?id:", re.MULTILINE)


def read_database(path: Path) -> Iterator[Record]:
    """Yield the runs of a database, a record for each step that has metrics.

    A deleted run is left out.

    Raises:
        BadInput: it is no database of MLflow's.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            runs = dict(
                database.execute(
                    "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active'"
                    " ORDER BY start_time, run_uuid"
                )
            )
            settings: dict[str, dict[str, Scalar]] = defaultdict(dict)
            for run, key, value in database.execute("SELECT run_uuid, key, value FROM params"):
                settings[run][key] = value
            metrics: dict[str, dict[int, dict[str, Scalar]]] = defaultdict(
                lambda: defaultdict(dict)
            )
            logged = "SELECT run_uuid, step, key, value, is_nan FROM metrics ORDER BY timestamp"
            for run, step, key, value, is_nan in database.execute(logged):
                metrics[run][step][key] = float("nan") if is_nan else value
    except sqlite3.Error as error:
        raise BadInput(f"{path}: no database of MLflow's ({error})") from None
    for run, name in runs.items():
        yield from _records(f"{path}: {name or run}", path, settings[run], metrics[run])


def read_folder(path: Path) -> Iterator[Record]:
    """Yield the runs of a folder `mlruns`, a record for each step that has metrics."""
    for meta in sorted(path.rglob("meta.yaml")):
        folder, about = meta.parent, meta.read_text()
        # Logged models and experiments have such a file, too.
        if not _RUN.search(about) or "lifecycle_stage: deleted" in about:
            continue
        settings: dict[str, Scalar] = {
            str(file.relative_to(folder / "params")): file.read_text().strip()
            for file in sorted((folder / "params").rglob("*"))
            if file.is_file()
        }
        metrics: dict[int, dict[str, Scalar]] = defaultdict(dict)
        for file in sorted((folder / "metrics").rglob("*")):
            if file.is_file():
                name = str(file.relative_to(folder / "metrics"))
                for step, value in _points(file):
                    metrics[step][name] = value
        yield from _records(str(folder), folder, settings, metrics)


def _points(file: Path) -> Iterator[tuple[int, float]]:
    """Yield step and value of the lines `time value step` of a metric's file."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            _, value, step = line.split()[:3]
            yield int(step), float(value)
        except ValueError:
            raise BadInput(f"{file}:{number}: no line of a metric of MLflow's") from None


def _records(
    where: str,
    source: Path,
    settings: dict[str, Scalar],
    metrics: dict[int, dict[str, Scalar]],
) -> Iterator[Record]:
    if not metrics:
        yield Record(where=where, source=source, values=settings)
    for step, values in sorted(metrics.items()):
        yield Record(where=where, source=source, values=settings | values, epoch=step)

"""Curves as MLflow reads them: an experiment in one SQLite file, a run for each curve."""

import logging
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .exported_curves import Curve, same

FILE = "mlflow.db"
# MLflow takes no more values in one call.
MOST = 1000
_KEY = "vtjobs.key"


class MLflowWriter:
    """Writes runs with their values by epoch, and what they are as parameters.

    A second export adds what an earlier one did not have, and makes anew what no longer holds.

    Args:
        folder: the database lies in it; made where it is not there.
        experiment: its name.

    Raises:
        ImportError: mlflow is not installed.
    """

    writes_parts = True

    def __init__(self, folder: Path, experiment: str) -> None:
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        # It tells of each table that it makes in a new database.
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        folder.mkdir(parents=True, exist_ok=True)
        self._entities: Any = entities
        self._client = MlflowClient(tracking_uri=uri_of(folder))
        found = self._client.get_experiment_by_name(experiment)
        if found is not None and found.lifecycle_stage != "active":
            self._client.restore_experiment(found.experiment_id)
        artifacts = (folder / "artifacts").absolute().as_uri()
        self._experiment = (
            found.experiment_id
            if found
            else self._client.create_experiment(experiment, artifact_location=artifacts)
        )
        # Key of a curve -> MLflow's run.
        self._runs: dict[str, str] = {}

    def write(self, curve: Curve) -> None:
        """Add values to the curve's run, which is made where it is not there."""
        run_id, known = self._place(curve)
        now = round(time.time() * 1000)
        metrics = [
            self._entities.Metric(value.tag, value.value, now, value.epoch)
            for value in curve.values
            if (value.epoch, value.tag) not in known
        ]
        for start in range(0, len(metrics), MOST):
            self._client.log_batch(run_id, metrics=metrics[start : start + MOST])
        self._client.update_run(run_id, status="FINISHED" if curve.is_over else "RUNNING")

    def close(self) -> None:
        """MLflow has written everything by now."""

    def _place(self, curve: Curve) -> tuple[str, set[tuple[int, str]]]:
        """Return the curve's run, and the points that it has already."""
        if not curve.is_new:
            return self._runs[curve.key], set()
        where = f"tags.`{_KEY}` = '{curve.key}'"
        now = {(value.epoch, value.tag): value.value for value in curve.values}
        for run in self._client.search_runs([self._experiment], where):
            had = self._history(run)
            holds = all(place in now and same(had[place], now[place]) for place in had)
            if holds and run.data.params and curve.key not in self._runs:
                self._runs[curve.key] = run.info.run_id
                return run.info.run_id, set(had)
            # An export was cut short before the parameters, or the run was trained anew.
            self._client.delete_run(run.info.run_id)
        return self._begin(curve), set()

    def _begin(self, curve: Curve) -> str:
        tags = {_KEY: curve.key, "vtjobs.cell": curve.cell, "mlflow.source.name": "vtjobs"}
        made = self._client.create_run(self._experiment, run_name=curve.name, tags=tags)
        seed = {} if curve.seed is None else {"seed": str(curve.seed)}
        params = [self._entities.Param(*item) for item in (curve.labels | seed).items()]
        self._client.log_batch(made.info.run_id, params=params)
        self._runs[curve.key] = made.info.run_id
        return self._runs[curve.key]

    def _history(self, run: Any) -> dict[tuple[int, str], float]:
        return {
            (point.step, tag): point.value
            for tag in run.data.metrics
            for point in self._client.get_metric_history(run.info.run_id, tag)
        }


def uri_of(folder: Path) -> str:
    """Return the address of the database in a folder, as MLflow is told it."""
    return f"sqlite:///{quote(str((folder / FILE).absolute()))}"

"""Curves as MLflow reads them: an experiment in one SQLite file, a run for each curve."""

import logging
import time
from pathlib import Path
from typing import Any

from .exported_curves import Curve

FILE = "mlflow.db"
# MLflow takes no more values in one call.
MOST = 1000
_KEY = "vtjobs.key"


class MLflowWriter:
    """Writes runs with their values by epoch, and what they are as parameters.

    A second export adds what an earlier one did not have; means are made anew.

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
        self._client = MlflowClient(tracking_uri=f"sqlite:///{(folder / FILE).absolute()}")
        found = self._client.get_experiment_by_name(experiment)
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
        run_id = self._runs.get(curve.key) or self._begin(curve)
        known = self._known(run_id, curve)
        now = round(time.time() * 1000)
        metrics = [
            self._entities.Metric(value.tag, value.value, now, value.epoch)
            for value in curve.values
            if (value.tag, value.epoch) not in known
        ]
        for start in range(0, len(metrics), MOST):
            self._client.log_batch(run_id, metrics=metrics[start : start + MOST])
        status = "FINISHED" if curve.is_over else "RUNNING"
        self._client.update_run(run_id, status=status)

    def close(self) -> None:
        """MLflow has written everything by now."""

    def _begin(self, curve: Curve) -> str:
        where = f"tags.`{_KEY}` = '{curve.key}'"
        earlier = self._client.search_runs([self._experiment], where)
        if curve.seed is None:
            # With more seeds the mean of an epoch has changed.
            for run in earlier:
                self._client.delete_run(run.info.run_id)
            earlier = []
        if earlier:
            self._runs[curve.key] = earlier[0].info.run_id
            return self._runs[curve.key]
        tags = {_KEY: curve.key, "vtjobs.cell": curve.cell, "mlflow.source.name": "vtjobs"}
        made = self._client.create_run(self._experiment, run_name=curve.name, tags=tags)
        seed = {} if curve.seed is None else {"seed": str(curve.seed)}
        params = [self._entities.Param(*item) for item in (curve.labels | seed).items()]
        self._client.log_batch(made.info.run_id, params=params)
        self._runs[curve.key] = made.info.run_id
        return self._runs[curve.key]

    def _known(self, run_id: str, curve: Curve) -> set[tuple[str, int]]:
        """Return the points that an earlier export wrote."""
        there = self._client.get_run(run_id).data.metrics
        tags = {value.tag for value in curve.values} & set(there)
        return {
            (tag, point.step)
            for tag in tags
            for point in self._client.get_metric_history(run_id, tag)
        }

"""Curves as W&B reads them: folders that `wandb sync` uploads, or `wandb leet` shows."""

import os
import shutil
from pathlib import Path

from .exported_curves import Curve

FOLDER = "wandb"


class WandbWriter:
    """Writes offline runs, each grouped with its cell. What an earlier export wrote is replaced.

    Args:
        folder: `wandb` is made in it.
        project: where `wandb sync` puts them.

    Raises:
        ImportError: wandb is not installed.
    """

    # An offline run cannot be opened again.
    writes_parts = False

    def __init__(self, folder: Path, project: str) -> None:
        # It is not to look for a server, nor to write into the user's own settings.
        os.environ["WANDB_MODE"] = "offline"
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self._wandb = wandb
        self._folder = folder.absolute()
        self._project = project
        # What W&B notes of itself is the machine that exports: not the one that trained.
        self._settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_stats=True,
            x_disable_meta=True,
        )

    def write(self, curve: Curve) -> None:
        """Write one run. Steps are epochs."""
        for old in (self._folder / FOLDER).glob(f"offline-run-*-{curve.key}"):
            shutil.rmtree(old)
        seed = {} if curve.seed is None else {"seed": curve.seed}
        run = self._wandb.init(
            mode="offline",
            dir=self._folder,
            project=self._project,
            id=curve.key,
            name=curve.name,
            group=curve.cell,
            job_type="mean" if curve.seed is None else "run",
            config={**curve.labels, **seed},
            settings=self._settings,
            reinit="create_new",
        )
        by_epoch: dict[int, dict[str, float]] = {}
        for value in curve.values:
            by_epoch.setdefault(value.epoch, {})[value.tag] = value.value
        for epoch, values in by_epoch.items():
            run.log({"epoch": epoch, **values}, step=epoch)
        run.finish()

    def close(self) -> None:
        """Every run is finished by now."""

"""Count parameters and multiply-adds of cells' models.

`python -m vtjobs.workers.tools.counts` reads settings of cells as JSON, by any key, and prints the
counts by the same keys.
"""

import json
import sys
import traceback

import torch

from ...jobs.documents import from_plain, to_plain
from ...jobs.run.cost import Counts
from ...jobs.run.settings import CellSettings
from ...jobs.run.spec import STREAMS
from .. import models  # noqa: F401  registers ours with timm
from ..randomness import Streams
from ..training.trainee import make_trainee
from .measure import multiply_adds


def count(settings: CellSettings) -> Counts:
    """Return the counts of one cell, or why there are none."""
    try:
        trainee = make_trainee(settings, Streams(dict.fromkeys(STREAMS, 0)))
        size, channels = settings.recipe.image_size, settings.dataset.channels
        return Counts(
            parameters=_parameters(trainee.backbone),
            head_parameters=0 if trainee.head is None else _parameters(trainee.head),
            multiply_adds=multiply_adds(
                trainee.backbone, (channels, size, size), torch.device("cpu")
            ),
        )
    # A model's forward, or a lab's own head, may raise anything.
    except Exception as error:
        return Counts(error="".join(traceback.format_exception_only(error)).splitlines()[0])


def _parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def main() -> int:
    """Answer what is asked on stdin."""
    asked = from_plain(json.load(sys.stdin), dict[str, CellSettings])
    json.dump(to_plain({key: count(settings) for key, settings in asked.items()}), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

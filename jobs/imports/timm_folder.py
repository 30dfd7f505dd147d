"""Runs of timm's own `train.py`: a folder with `args.yaml` and `summary.csv` for each."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from ..errors import BadInput
from ..values import changed
from .record import Record, Scalar
from .tables import flat, read_csv

ARGS = "args.yaml"
SUMMARY = "summary.csv"


def read_timm(path: Path) -> Iterator[Record]:
    """Yield the runs below a folder, a record for each epoch.

    The arguments of the script, such as `model`, `dataset` and `seed`, stand beside its scores,
    such as `eval_top1`.

    Raises:
        BadInput: a file is not as timm writes it.
    """
    for args in sorted(path.rglob(ARGS)):
        folder = args.parent
        if (folder / SUMMARY).is_file():
            settings = _arguments(args)
            for record in read_csv(folder / SUMMARY):
                yield changed(record, source=folder, values=settings | record.values)


def _arguments(path: Path) -> dict[str, Scalar]:
    """Return the arguments of the script.

    Raises:
        BadInput: they are no YAML.
    """
    try:
        found = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: no YAML ({str(error).splitlines()[0]})") from None
    return flat(found) if isinstance(found, dict) else {}

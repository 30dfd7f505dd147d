"""Runs of timm's own `train.py`: a folder with `args.yaml` and `summary.csv` for each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..strict_yaml import parse
from .record import Record
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
            settings = flat(parse(args.read_bytes(), file=str(args)).data or {})
            for record in read_csv(folder / SUMMARY):
                yield replace(record, source=folder, values=settings | record.values)

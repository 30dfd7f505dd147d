"""Curves as TensorBoard reads them: a folder for each."""

import time
from collections.abc import Iterable
from pathlib import Path

from .exported_curves import Curve

# Ends the names of our files: files of another program in the same folder stay.
SUFFIX = ".vtjobs"


class TensorBoardWriter:
    """Writes event files. What an earlier export wrote into the folder is removed.

    Args:
        folder: that TensorBoard is told to read.

    Raises:
        ImportError: tensorboard is not installed.
    """

    writes_parts = True

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._folder = folder
        self._event, self._summary, self._file = Event, Summary, EventFileWriter
        # Names depend on what is selected: one that is no longer written would stay.
        _remove(folder.rglob(f"events.out.tfevents.*{SUFFIX}"))

    def write(self, curve: Curve) -> None:
        """Write what is new in a file of its own: TensorBoard reads a folder's files in order."""
        folder = self._folder / curve.name
        folder.mkdir(parents=True, exist_ok=True)
        if curve.is_new:
            _remove(folder.glob(f"events.out.tfevents.*{SUFFIX}"))
        # Its name has the second, the host and the process: a counter tells two of one second.
        count = len(list(folder.glob(f"events.out.tfevents.*{SUFFIX}")))
        writer = self._file(str(folder), filename_suffix=f".{count:06d}{SUFFIX}")
        try:
            for epoch, tag, value in curve.values:
                one = self._summary(value=[self._summary.Value(tag=tag, simple_value=value)])
                writer.add_event(self._event(wall_time=time.time(), step=epoch, summary=one))
        finally:
            writer.close()

    def close(self) -> None:
        """Every curve's file is closed by now."""


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)

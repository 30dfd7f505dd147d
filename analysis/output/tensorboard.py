"""Curves as TensorBoard reads them: a folder for each."""

import time
from pathlib import Path

from .exported_curves import Curve

# Ends the names of our files: files of another program in the same folder stay.
SUFFIX = ".vtjobs"


class TensorBoardWriter:
    """Writes event files. What an earlier export wrote is replaced.

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
        self._begun: set[str] = set()

    def write(self, curve: Curve) -> None:
        """Write what is new in a file of its own: TensorBoard reads a folder's files in order."""
        folder = self._folder / curve.name
        folder.mkdir(parents=True, exist_ok=True)
        if curve.name not in self._begun:
            self._begun.add(curve.name)
            for old in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
                old.unlink()
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

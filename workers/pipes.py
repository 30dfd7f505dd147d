"""The pipes between agent and ranks: JSON lines up, a stop byte down, and capped logs."""

import json
import os
import sys
from codecs import getincrementaldecoder
from pathlib import Path
from typing import Any

from ..jobs.atomic_files import open_file
from ..jobs.names import printable
from ..jobs.workspace.journal import Line

STOP = b"s"


class LineReader:
    """Cut what arrives on a non-blocking pipe into JSON documents."""

    def __init__(self, handle: int) -> None:
        os.set_blocking(handle, False)
        self.handle = handle
        self._rest = b""
        self.open = True

    def read(self) -> list[Line]:
        """Return the documents that have arrived; `open` turns false when the writer is gone."""
        found: list[Line] = []
        while True:
            try:
                data = os.read(self.handle, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                self.open = False
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            found += [json.loads(line) for line in lines]
            if len(data) < 1 << 16:
                break
        return found

    def close(self) -> None:
        os.close(self.handle)
        self.open = False


class LineWriter:
    """Send JSON documents; a reader that is gone is no error here."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def send(self, kind: str, **fields: Any) -> None:
        view = memoryview(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except BrokenPipeError:
            return


def write_log_line(text: str) -> None:
    """Write a line to this rank's log at once and in one piece, after what was printed before it.

    A reader that is gone is no error here.
    """
    try:
        sys.stdout.flush()
        os.write(1, text.encode(errors="replace") + b"\n")
    except OSError:
        return


class StopFlag:
    """Whether the agent has asked this rank to stop; looking costs one system call."""

    def __init__(self, handle: int) -> None:
        os.set_blocking(handle, False)
        self._handle = handle
        self._stopped = False

    def __call__(self) -> bool:
        if not self._stopped:
            try:
                # An empty read means that the agent is gone. The kernel is about to end this rank
                # too, and until then it must not have the other nodes' ranks stop in good order:
                # they are to miss this one.
                self._stopped = os.read(self._handle, 1) == STOP
            except BlockingIOError:
                pass
        return self._stopped


class CappedLog:
    """Copy a pipe into a file that never grows beyond its cap.

    The beginning and the end are kept.
    """

    def __init__(
        self, handle: int, path: Path, *, cap_bytes: int = 64 << 20, mirror: bool = False
    ) -> None:
        self.mirror = mirror
        self._decoder = getincrementaldecoder("utf-8")("replace")
        os.set_blocking(handle, False)
        self.handle = handle
        self.path = path
        self.open = True
        self._part = cap_bytes // 3
        self._written = 0
        self._file = open_file(path, os.O_WRONLY | os.O_APPEND)
        self._head_full = False

    def pump(self) -> None:
        """Copy what has arrived."""
        for _ in range(16):
            try:
                data = os.read(self.handle, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self.open = False
                return
            self._write(data)

    def _write(self, data: bytes) -> None:
        if self.mirror:
            # What a rank prints must not move the cursor or set the title of who watches.
            text = self._decoder.decode(data).replace("\r", "\n")
            os.write(2, printable(text).encode())
        try:
            while data:
                if self._written >= self._part:
                    self._rotate()
                piece, data = data[: self._part - self._written], data[self._part - self._written :]
                self._written += len(piece)
                os.write(self._file, piece)
        except OSError:
            # A full disk must not stop the training that is being logged.
            return

    def _rotate(self) -> None:
        """Keep the first part as `.head`, and the part before the current one as `.previous`."""
        suffix = ".previous" if self._head_full else ".head"
        os.replace(self.path, self.path.with_name(self.path.name + suffix))
        fresh = open_file(self.path, os.O_WRONLY | os.O_APPEND)
        os.close(self._file)
        self._file, self._head_full, self._written = fresh, True, 0

    def close(self) -> None:
        self.pump()
        os.close(self.handle)
        os.close(self._file)
        self.open = False

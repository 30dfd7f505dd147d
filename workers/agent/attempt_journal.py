"""An attempt's journal on its node.

The agent's pen, with a little disk space held back for the end record.
"""

import os
import time
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import open_file
from ...jobs.workspace.journal import JournalWriter
from .outcome import Outcome

RESERVE_BYTES = 64 << 10


class AttemptJournal:
    """Write events.

    When the disk is full, the reserve is given up so that the end can still be told.

    Raises (at creation):
        FileExistsError: this attempt has a journal already.
    """

    def __init__(self, path: Path) -> None:
        self._writer = JournalWriter(path)
        self._reserve = path.with_name(f".{path.stem}.reserve")
        with open(open_file(self._reserve, os.O_WRONLY), "wb") as stream:
            try:
                os.posix_fallocate(stream.fileno(), 0, RESERVE_BYTES)
            except OSError:
                stream.write(bytes(RESERVE_BYTES))

    def write(self, kind: str, **fields: Any) -> None:
        """Append an event, stamped with the time."""
        self._writer.write(kind, at=time.time(), **fields)

    def end(self, outcome: Outcome, position: dict[str, int], usage: dict[str, Any]) -> None:
        """Write the end record and close."""
        self._reserve.unlink(missing_ok=True)
        self.write(
            "end",
            state=outcome.state,
            **{"class": outcome.failure},
            signature=outcome.signature[:500],
            error=outcome.error[-4000:],
            exit_code=int(outcome.exit_code),
            rank=outcome.rank,
            epoch=position.get("epoch"),
            step=position.get("step"),
            **({"host": outcome.host} if outcome.host else {}),
            **({} if outcome.explained else {"explained": False}),
            **({"usage": usage} if usage else {}),
        )
        self._writer.close()

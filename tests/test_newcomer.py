"""What a terminal shows somebody new, from the first submission to a cancel and back."""

from pathlib import Path

import pytest

from .conftest import end_processes
from .support import newcomer, tmux


@pytest.mark.long
@pytest.mark.skipif(not tmux.is_there(), reason="tmux is not installed")
def test_a_newcomer_sees_what_is_on_file(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    try:
        shown = newcomer.transcript(folder, cache)
    finally:
        end_processes(folder / "runs")
    again = "If this is intended: python -m tests.support.newcomer"
    assert shown == newcomer.GOLDEN.read_text(), again

"""What passes between an agent and its ranks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vtjobs.workers.pipes import STOP, CappedLog, StopFlag


def test_a_stop_that_was_asked_for_stands() -> None:
    reader, writer = os.pipe()
    asked = StopFlag(reader)
    assert not asked()
    os.write(writer, STOP)
    assert asked() and asked()


def test_an_agent_that_is_gone_has_asked_for_nothing() -> None:
    reader, writer = os.pipe()
    asked = StopFlag(reader)
    os.close(writer)
    assert not asked()


def test_what_a_rank_prints_reaches_a_watching_terminal_without_escapes_and_the_log_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    log = CappedLog(reading, tmp_path / "rank-0.log", mirror=True)
    printed = "10 %\r20 %\n\x1b]0;HACKED\x07 ±\n".encode()
    for piece in (printed[:-2], printed[-2:]):
        os.write(writing, piece)
        log.pump()
    os.close(writing)
    log.close()
    assert capfd.readouterr().err == "10 %\n20 %\n�]0;HACKED� ±\n"
    assert (tmp_path / "rank-0.log").read_bytes() == printed


def test_a_line_for_the_log_is_there_at_once_and_after_what_was_printed_before_it() -> None:
    code = (
        "import os; from vtjobs.workers.pipes import write_log_line; print('before');"
        " write_log_line('the line'); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "before\nthe line\n"


def test_a_log_that_nobody_reads_any_more_does_not_stop_the_training() -> None:
    code = (
        "import os; from vtjobs.workers.pipes import write_log_line; reader, writer = os.pipe();"
        " os.dup2(writer, 1); os.close(reader); write_log_line('x'); os._exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 7

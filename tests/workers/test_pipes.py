"""What passes between an agent and its ranks."""

import os
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

"""What passes between an agent and its ranks."""

import os

from vtjobs.workers.pipes import STOP, StopFlag


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

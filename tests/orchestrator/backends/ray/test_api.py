"""Asking Ray's HTTP API."""

import socket
from collections.abc import Iterator

import pytest

from vtjobs.jobs.errors import SchedulerSlow, SchedulerUnreachable
from vtjobs.orchestrator.backends.ray.api import Api


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A head that stands still: the system takes its connections, and it answers none."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_a_head_that_answers_late_is_slow(silent: socket.socket) -> None:
    api = Api(f"http://127.0.0.1:{silent.getsockname()[1]}")
    with pytest.raises(SchedulerSlow, match="timed out"):
        api.ask("/api/version", deadline_s=0.2)


def test_a_head_that_is_gone_is_not_slow(silent: socket.socket) -> None:
    api = Api(f"http://127.0.0.1:{silent.getsockname()[1]}")
    silent.close()
    with pytest.raises(SchedulerUnreachable, match="refused") as caught:
        api.ask("/api/version", deadline_s=10)
    assert not isinstance(caught.value, SchedulerSlow)


def test_a_proxy_that_got_no_answer_in_time_says_that_the_head_is_slow() -> None:
    api = Api("http://127.0.0.1:8265")
    assert isinstance(api._no(504, ""), SchedulerSlow)
    assert not isinstance(api._no(502, ""), SchedulerSlow)

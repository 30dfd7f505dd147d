"""Who is let through to rank 0's store."""

import socket
from collections.abc import Iterator

import pytest

from vtjobs.workers.ranks.gate import Gate, NotReached, Passage, knock, reach
from vtjobs.workers.ranks.rendezvous import LOOPBACK, listen, listen_at

KEY = "a" * 64


@pytest.fixture
def store() -> Iterator[socket.socket]:
    """A listener in place of rank 0's store."""
    with listen() as made:
        made.settimeout(10)
        yield made


@pytest.fixture
def gate(store: socket.socket) -> Iterator[Gate]:
    made = Gate([LOOPBACK], store=store.getsockname()[1], key=KEY)
    yield made
    made.close()


def test_who_knows_the_key_reaches_the_store_through_a_passage(
    store: socket.socket, gate: Gate
) -> None:
    passage = Passage((LOOPBACK, gate.port), key=KEY)
    with socket.create_connection((LOOPBACK, passage.port), timeout=10) as rank:
        rank.sendall(b"question")
        served, _ = store.accept()
        with served:
            assert served.recv(100) == b"question"
            served.sendall(b"answer")
            assert rank.recv(100) == b"answer"
        assert rank.recv(100) == b"", "an end on one side is the end on the other"
    passage.close()


def test_who_does_not_know_the_key_never_reaches_the_store(
    store: socket.socket, gate: Gate
) -> None:
    with pytest.raises(OSError):
        knock((LOOPBACK, gate.port), "b" * 64)
    with socket.create_connection((LOOPBACK, gate.port), timeout=10) as stranger:
        nonce = stranger.recv(32)
        # The right answer to another number: a recorded proof is worth nothing.
        stranger.sendall(nonce + bytes(32))
        assert stranger.recv(100) == b""
    store.setblocking(False)
    with pytest.raises(BlockingIOError):
        store.accept()


def test_a_rank_does_not_talk_to_a_gate_that_does_not_know_the_key() -> None:
    with listen() as impostor:
        impostor.settimeout(10)
        passage = Passage((LOOPBACK, impostor.getsockname()[1]), key=KEY)
        with socket.create_connection((LOOPBACK, passage.port), timeout=10) as rank:
            met, _ = impostor.accept()
            with met:
                met.sendall(bytes(32))
                said = met.recv(32 + 32, socket.MSG_WAITALL)
                met.sendall(bytes(32))
                assert KEY.encode() not in said
                assert rank.recv(100) == b""
                assert met.recv(100) == b""
        passage.close()


def test_a_closed_gate_lets_nobody_in_and_keeps_who_is_in(store: socket.socket, gate: Gate) -> None:
    with knock((LOOPBACK, gate.port), KEY) as inside:
        served, _ = store.accept()
        gate.close()
        with pytest.raises(OSError):
            knock((LOOPBACK, gate.port), KEY)
        with served:
            inside.sendall(b"still here")
            assert served.recv(100) == b"still here"


def test_the_first_address_that_answers_with_the_key_is_taken(gate: Gate) -> None:
    assert reach(["127.0.0.99", LOOPBACK], gate.port, KEY) == (LOOPBACK, LOOPBACK)
    with pytest.raises(NotReached, match="VTJOBS_HOST"):
        reach([LOOPBACK], gate.port, "b" * 64)


def test_a_gate_listens_at_its_nodes_addresses_alone_and_at_one_port() -> None:
    listeners = listen_at([LOOPBACK, "127.0.0.2"])
    assert [one.getsockname()[0] for one in listeners] == [LOOPBACK, "127.0.0.2"]
    assert len({one.getsockname()[1] for one in listeners}) == 1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.3", listeners[0].getsockname()[1]), timeout=10)
    for one in listeners:
        one.close()


def test_an_address_that_is_no_interfaces_own_is_served_by_all() -> None:
    # Reserved for documentation.
    (listener,) = listen_at(["192.0.2.1"])
    with listener:
        assert listener.getsockname()[0] == "0.0.0.0"

"""The way from other nodes to rank 0's store, for those alone who know the attempt's key.

torch's TCPStore lets in whoever reaches its port, so it listens on the loopback interface. Before
it node 0's agent keeps a gate on the node's own addresses. Each rank of another node keeps a
passage: a port on its loopback interface, whose connections it takes to the gate and through it.

Both sides prove that they know the key by an HMAC over two fresh numbers, so the key itself never
travels. What passes afterwards is not encrypted, as nothing is that ranks say to each other.
"""

import contextlib
import hmac
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence

from .rendezvous import LOOPBACK, listen, listen_at

logger = logging.getLogger("vtjobs.gate")

# A reachable node answers at once: the gate is there before its address is published.
CONNECT_S = 5.0
_NONCE, _PROOF = 32, 32
# Whoever does not prove anything within this time is left.
_PATIENCE_S = 10.0
# How many may be proving at a time; a run has hardly more ranks that begin at once.
_MOST_UNKNOWN = 1024
_AGAIN_S = 0.1
_CHUNK = 1 << 16


class Refused(ConnectionError):
    """Who answers does not know the attempt's key."""


def _proof(key: str, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(key.encode(), side + nonces, "sha256")


def _read(peer: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = peer.recv(size - len(found))
        if not part:
            raise Refused("connection closed before the key was proved")
        found += part
    return found


def admit(peer: socket.socket, key: str) -> None:
    """Have whoever connected prove that they know the key, and prove it to them.

    Raises:
        OSError: they did not, in time.
    """
    peer.settimeout(_PATIENCE_S)
    mine = secrets.token_bytes(_NONCE)
    peer.sendall(mine)
    nonces = mine + _read(peer, _NONCE)
    if not hmac.compare_digest(_read(peer, _PROOF), _proof(key, b"rank", nonces)):
        raise Refused("a wrong key")
    peer.sendall(_proof(key, b"gate", nonces))
    peer.settimeout(None)


def knock(address: tuple[str, int], key: str) -> socket.socket:
    """Return a connection through a gate.

    Raises:
        OSError: nobody is there, or they do not know the key.
    """
    peer = socket.create_connection(address, timeout=CONNECT_S)
    try:
        theirs, mine = _read(peer, _NONCE), secrets.token_bytes(_NONCE)
        nonces = theirs + mine
        peer.sendall(mine + _proof(key, b"rank", nonces))
        if not hmac.compare_digest(_read(peer, _PROOF), _proof(key, b"gate", nonces)):
            raise Refused("a wrong key")
    except OSError:
        peer.close()
        raise
    peer.settimeout(None)
    return peer


class NotReached(ConnectionError):
    """No address of the node with rank 0 answers."""


def reach(hosts: Sequence[str], port: int, key: str) -> tuple[str, str]:
    """Return the first of a node's addresses where its gate answers, and this machine's own address
    on the way there.

    Raises:
        NotReached: none does.
    """
    for host in hosts:
        with contextlib.suppress(OSError), knock((host, port), key) as probe:
            return host, str(probe.getsockname()[0])
    places = ", ".join(hosts)
    raise NotReached(
        f"connection refused: node 0 is not reached at {places}; VTJOBS_HOST names its address"
        " there"
    )


class Relay:
    """Listens, and joins each connection to another one, from threads of its own.

    Args:
        listeners: bound sockets, which are closed with it.
        onward: returns the other connection, or raises OSError where there is none.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        onward: Callable[[socket.socket], socket.socket],
    ) -> None:
        self._listeners = listeners
        self._onward = onward
        self._unknown = threading.Semaphore(_MOST_UNKNOWN)
        for listener in listeners:
            _in_thread(self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                # Closed, or out of handles: whoever comes again is heard then.
                if listener.fileno() < 0:
                    return
                time.sleep(_AGAIN_S)
                continue
            if self._unknown.acquire(blocking=False):
                _in_thread(self._serve, peer)
            else:
                peer.close()

    def _serve(self, peer: socket.socket) -> None:
        try:
            other = self._onward(peer)
        except OSError as error:
            logger.warning("connection refused: %s", error)
            peer.close()
            return
        finally:
            self._unknown.release()
        for one in (peer, other):
            # What a store says is short and waited for.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _in_thread(_pass_on, other, peer)
        _pass_on(peer, other)

    def close(self) -> None:
        """Let nobody in any more; what is joined stays until one side ends it."""
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                # Wakes the thread that waits there.
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()


class Gate(Relay):
    """Lets those who know the key through to a store on this node's loopback interface."""

    def __init__(self, hosts: Sequence[str], *, store: int, key: str) -> None:
        listeners = listen_at(hosts)
        self.port = int(listeners[0].getsockname()[1])

        def onward(peer: socket.socket) -> socket.socket:
            admit(peer, key)
            return socket.create_connection((LOOPBACK, store))

        super().__init__(listeners, onward)


class Passage(Relay):
    """Takes connections on this node's loopback interface through another node's gate."""

    def __init__(self, gate: tuple[str, int], *, key: str) -> None:
        listener = listen()
        self.port = int(listener.getsockname()[1])
        super().__init__([listener], lambda _: knock(gate, key))


def _in_thread(work: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes until either side ends, then end both."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)

"""How the ranks of one run find each other.

Where rank 0 listens, and by which address it is reached.
"""

import fcntl
import os
import socket
import struct

from ...jobs.config.host import address_towards

LOOPBACK = "127.0.0.1"
# A reachable node answers at once: the listener is there before its address is published.
CONNECT_S = 5.0
_SIOCGIFADDR = 0x8915


def listen(*, everywhere: bool = False) -> socket.socket:
    """Open a listening socket on a free port, for rank 0 to be handed.

    Of this machine, or of all its interfaces.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.bind(("" if everywhere else LOOPBACK, 0))
    found.listen(1024)
    return found


def own_addresses(host: str = "") -> list[str]:
    """Return the addresses by which other nodes may reach this one, best first.

    `VTJOBS_HOST` overrides them, and `host` is the scheduler's name of this node. A virtual node's
    name need not resolve, and many machines resolve their own name to the loopback interface, so
    the address of the default route is named too.
    """
    if chosen := os.environ.get("VTJOBS_HOST"):
        return [chosen]
    names = (host, socket.gethostname())
    found = [_resolve(name) for name in names if name] + [_of_default_route()]
    return list(
        dict.fromkeys(address for address in found if address and not address.startswith("127."))
    ) or [LOOPBACK]


class NotReached(ConnectionError):
    """No address of the node with rank 0 answers."""


def reach(hosts: list[str], port: int) -> tuple[str, str]:
    """Return the first of a node's addresses that answers, and this machine's own address on the
    way there.

    Raises:
        NotReached: none does.
    """
    for host in hosts:
        try:
            with socket.create_connection((host, port), timeout=CONNECT_S) as probe:
                return host, str(probe.getsockname()[0])
        except OSError:
            continue
    places = ", ".join(hosts)
    raise NotReached(
        f"connection refused: node 0 is not reached at {places}; VTJOBS_HOST names its address"
        " there"
    )


def interface_of(address: str) -> str | None:
    """Return the network interface that has this address, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(
                    probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15])
                )
            except OSError:
                # An interface without an IPv4 address.
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


def _resolve(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def _of_default_route() -> str:
    # An address that is reserved for documentation: nobody's own.
    return address_towards("192.0.2.1")

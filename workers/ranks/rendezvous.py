"""How the ranks of one run find each other.

Where one listens, and by which addresses a node is reached.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Sequence

from ...jobs.config.host import address_towards

LOOPBACK = "127.0.0.1"
# A port that is free at one address may be taken at another.
_PORT_TRIES = 5
_SIOCGIFADDR = 0x8915


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """Open a listening socket, by default on a free port of the loopback interface.

    Raises:
        OSError: the address is none of this machine's, or the port is taken.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    found.listen(1024)
    return found


def listen_at(hosts: Sequence[str]) -> list[socket.socket]:
    """Open listening sockets at one free port of each of this node's addresses.

    Of all its interfaces where it does not have one of them itself, as behind a translated address.
    """
    for _ in range(_PORT_TRIES):
        found: list[socket.socket] = []
        try:
            for host in hosts:
                found.append(listen(host, found[0].getsockname()[1] if found else 0))
            return found
        except OSError:
            for one in found:
                one.close()
    return [listen("")]


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

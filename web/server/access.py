"""Who may see the pages: whoever has the token, by a name of this machine, from these pages."""

import hashlib
import hmac
import ipaddress
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from ...jobs.values import Value

# Names of this machine by itself.
LOCAL = ("localhost", "127.0.0.1", "::1")


class Access(Value, frozen=True, kw_only=True):
    """What a request must have."""

    token: str
    hosts: frozenset[str]
    """Names that a browser may have asked for: another one is a page that a name server made
    point here.
    """

    @property
    def cookie(self) -> str:
        """The name of the cookie: cookies are kept by host, and two servers may share one."""
        return f"vtjobs-{hashlib.sha256(self.token.encode()).hexdigest()[:12]}"

    def knows_host(self, host: str) -> bool:
        """Return whether a `Host` header names this server."""
        return _name(host) in self.hosts

    def is_token(self, given: str) -> bool:
        """Return whether this is the token, in a time that tells nothing of it."""
        return hmac.compare_digest(given.encode(), self.token.encode())

    def lets_in(self, *, cookies: str, authorization: str) -> bool:
        """Return whether the headers of a request have the token."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return found is not None and self.is_token(found.value)


def access(token: str, host: str, others: Collection[str] = ()) -> Access:
    """Return what is asked of requests to a server.

    Args:
        token: the secret.
        host: that it listens on.
        others: names that a proxy in front of it is asked for.
    """
    return Access(
        token=token, hosts=frozenset(name.lower() for name in (*LOCAL, host, *others) if name)
    )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_same_origin(*, host: str, origin: str, site: str) -> bool:
    """Return whether a request that changes something came from a page of this server.

    Args:
        host: its `Host` header.
        origin: its `Origin` header.
        site: its `Sec-Fetch-Site` header, which browsers have sent since 2023 at the latest.
    """
    if site:
        return site == "same-origin"
    return bool(origin) and urlsplit(origin).netloc.lower() == host.lower()


def _name(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    return (urlsplit(f"//{host}").hostname or "").lower() if _is_plain(host) else ""


def _is_plain(host: str) -> bool:
    return not set(host) & set("/@?#\\ ")

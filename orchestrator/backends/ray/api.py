"""Ray's HTTP API.

Who may be asked, with which token, and "could not ask" as an exception of its own.

Ray runs whatever code it is sent, so a cluster that answers without a token is refused, and the
token goes to another host by https alone unless the user says otherwise.
"""

import ipaddress
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any

from ....jobs.errors import (
    BadInput,
    Problem,
    SchedulerSlow,
    SchedulerUnreachable,
    Unauthenticated,
)

_TURN_ON = "Start it with RAY_AUTH_MODE=token; see deploy/ray/README.md"
_TOKEN = "Set RAY_AUTH_TOKEN_PATH to a file with the cluster's token"
_MOST_BYTES = 256 << 20
_OPEN_TO_ALL = "answers without a token, so anybody who reaches it can run code there"


class Refused(SchedulerUnreachable):
    """The cluster's clear no, with its HTTP status.

    To whoever only wanted to know something it is no answer.
    """

    def __init__(self, status: int, text: str) -> None:
        lines = [line for line in text.splitlines() if any(map(str.isalpha, line))]
        super().__init__(_plain(lines[-1]) if lines else f"HTTP {status}")
        self.status = status
        # Whether the id of a submission is taken: by an earlier try at the same one.
        self.is_known = "already exists" in text


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Api:
    """One cluster's HTTP API."""

    def __init__(self, address: str, *, insecure: bool = False) -> None:
        self.address = address
        self.insecure = insecure
        self._is_safe = False
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if is_loopback(address):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def ask(
        self,
        path: str,
        *,
        deadline_s: float,
        body: dict[str, Any] | None = None,
        post: bool = False,
        token: bool = True,
    ) -> Any:
        """Return the answer to a GET, or to a POST where `post` says so or there is a body.

        Raises:
            SchedulerUnreachable: there was no answer, or it was that the token is wrong: nothing is
                known.
            SchedulerSlow: there was none in time.
            Refused: a clear no.
            BadInput: the token may not be sent there.
        """
        self._require_privacy()
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        if token and (secret := auth_token()):
            headers["Authorization"] = f"Bearer {secret}"
        method = "POST" if post or data else "GET"
        request = urllib.request.Request(
            self.address + path, data=data, headers=headers, method=method
        )
        try:
            with self._opener.open(request, timeout=deadline_s) as answer:
                text = answer.read(_MOST_BYTES)
            return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                raise self._no(error.code, error.read(1 << 16).decode(errors="replace")) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            kind = SchedulerSlow if isinstance(reason, TimeoutError) else SchedulerUnreachable
            raise kind(f"Ray at {self.address}: {_plain(str(reason))}") from None

    def _no(self, status: int, text: str) -> Exception:
        if status in (401, 403):
            text = f"Ray at {self.address}: authentication failed ({status}). {_TOKEN}"
            return Unauthenticated(text)
        if status in (502, 503, 504):
            kind = SchedulerSlow if status == HTTPStatus.GATEWAY_TIMEOUT else SchedulerUnreachable
            return kind(f"Ray at {self.address}: HTTP {status}")
        # The head hands on what a node's own agent said, and calls it a fault of its own.
        return Refused(400 if "status code 400" in text else status, text)

    def require_safe(self, *, deadline_s: float) -> None:
        """Refuse a cluster that anybody can send code to; asked once per process.

        Raises:
            BadInput: it takes requests without a token.
            SchedulerUnreachable: it could not be asked.
        """
        if self._is_safe:
            return
        try:
            self.ask("/api/version", deadline_s=deadline_s, token=False)
        except Unauthenticated:
            self._is_safe = True
            return
        raise BadInput(
            Problem(key="address", message=f"Ray at {self.address} {_OPEN_TO_ALL}", fix=_TURN_ON)
        )

    def _require_privacy(self) -> None:
        if self.address.startswith("https://") or is_loopback(self.address) or self.insecure:
            return
        message = f"the token would be sent to {self.address} unencrypted"
        fix = (
            "Use https or a tunnel (ssh -L 8265:127.0.0.1:8265 HEAD), or set backend.ray.insecure:"
            " true"
        )
        raise BadInput(Problem(key="address", message=message, fix=fix))


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    host = urllib.parse.urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def auth_token() -> str:
    """Return the token for Ray, from where Ray itself looks for it, or "".

    Raises:
        BadInput: what is there is no token, or a file that is named cannot be read.
    """
    source = "RAY_AUTH_TOKEN"
    token = os.environ.get(source, "").strip()
    if not token:
        named = os.environ.get("RAY_AUTH_TOKEN_PATH")
        source = named or os.path.expanduser("~/.ray/auth_token")
        try:
            token = Path(source).read_text(errors="replace").strip()
        except OSError as error:
            if named:
                raise BadInput(f"RAY_AUTH_TOKEN_PATH: {named}: {error.strerror}") from None
            return ""
    if not all("!" <= char <= "~" for char in token):
        # Not shown: part of it may be one.
        raise BadInput(f"{source}: expected one line with Ray's token")
    return token


def _plain(text: str) -> str:
    """Return what a cluster said as one printable line."""
    return "".join(char if char.isprintable() else " " for char in text)[:300].strip()

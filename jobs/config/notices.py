"""`notify:` of vtjobs.yaml: who is told what, and when."""

import shlex
from collections.abc import Mapping
from typing import Any

from ..errors import BadInput, suggest
from ..values import Value

# What somebody can be told of.
KINDS = ("finish", "fail", "breaker", "stall")
# What a command is called among the addresses.
COMMAND = "command"


class NoticeSettings(Value, frozen=True, kw_only=True):
    """Who is told what, and when."""

    to: tuple[str, ...] = ()
    """Addresses: `env:NAME`, `file:PATH`, or a URL of apprise."""
    command: tuple[str, ...] = ()
    """A program with its arguments, which gets the message as JSON."""
    on: tuple[str, ...] = KINDS
    every_s: int = 300
    """At least so many seconds lie between two messages to an address."""
    stall_s: int = 21_600
    """A grid stalls when nothing has happened to its runs for so many seconds."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """All that a message goes to."""
        return (*self.to, *((COMMAND,) if self.command else ()))


_KEYS = ("to", "command", "on", "every_s", "stall_s")


def notice_settings(given: Mapping[str, Any]) -> NoticeSettings:
    """Read the mapping `notify` of the settings.

    Raises:
        BadInput: a key is unknown, or a value is unusable.
    """
    for key in given:
        if key not in _KEYS:
            raise BadInput(f"notify: unknown key {key!r}. {suggest(str(key), _KEYS)}")
    found: dict[str, Any] = {}
    if "to" in given:
        found["to"] = tuple(_address(one) for one in _texts("to", given["to"]))
    if "on" in given:
        found["on"] = tuple(_kind(one) for one in _texts("on", given["on"]))
    if "command" in given:
        value = given["command"]
        words = shlex.split(value) if isinstance(value, str) else list(_texts("command", value))
        if not words:
            raise BadInput("notify: command: expected a program and its arguments")
        found["command"] = tuple(words)
    for key in ("every_s", "stall_s"):
        if key in given:
            found[key] = _seconds(key, given[key])
    return NoticeSettings(**found)


def shown(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping for people: of a URL, which may hold a password, its service alone."""
    hidden = dict(given)
    if "to" in hidden:
        hidden["to"] = [display(one) for one in _texts("to", hidden["to"])]
    return hidden


def display(address: str) -> str:
    """Return an address for people: of a URL, which may hold a password, its service alone."""
    return f"{address.partition('://')[0]}://…" if "://" in address else address


def _texts(key: str, value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) and one.strip() for one in values):
        raise BadInput(f"notify: {key}: expected a list of texts, got {value!r:.80}")
    return values


def _address(text: str) -> str:
    if text.startswith(("env:", "file:")) and text.partition(":")[2]:
        return text
    if "://" not in text:
        raise BadInput(
            "notify: to: expected env:NAME, file:PATH or a URL such as ntfy://ntfy.sh/my-topic, "
            f"got {text!r:.80}"
        )
    return text


def _kind(text: str) -> str:
    if text not in KINDS:
        raise BadInput(f"notify: on: unknown {text!r:.40}. {suggest(text, KINDS)}")
    return text


def _seconds(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10_000_000:
        raise BadInput(f"notify: {key}: expected a whole number of seconds, got {value!r:.40}")
    return value

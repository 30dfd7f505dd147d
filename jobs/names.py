"""The allow-list for every name that reaches a path, a scheduler, a terminal or a page."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
RUN_ID = re.compile(r"[0-9a-f]{16}\Z")
RUN_ID_PREFIX = re.compile(r"[0-9a-f]{4,16}\Z")
TOKEN = re.compile(r"vtj-[0-9a-z]{4,40}\Z")

# What a terminal, a browser or an editor would act on instead of showing it: control characters (C0
# and C1), marks that turn the direction of writing, separators of lines, and halves of characters.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def name_problem(value: str) -> str:
    """Return what is wrong with a name, or "" where nothing is."""
    if NAME.match(value):
        return ""
    if len(value) > 64:
        return "longer than 64 characters"
    if not value.isascii():
        return "only ASCII letters, digits and . _ - are allowed"
    return "use letters, digits and . _ -, and start with a letter or a digit"


def printable(text: str) -> str:
    """Return the text without the characters that a terminal would act on (tab and newline stay).

    Every text that vtjobs prints, or writes into a page or a table, passes through here.
    """
    return _CONTROL.sub("�", text)


def one_line(text: str) -> str:
    """Return the text as `printable` does, without line breaks and tabs: for a cell of a table."""
    return re.sub(r"[\t\n]+", " ", printable(text))

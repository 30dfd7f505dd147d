"""What the stored traceback of an attempt says to people.

Failures are grouped by their signature, which has no numbers. People are told the exception's own
line, and the file and line of their own code where it was raised.
"""

import re
from pathlib import Path
from typing import Literal, get_args

from ..values import Value

_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+).*$', re.M)
Part = Literal["head", "backbone", "dataset", "loss", "transform", "metric"]
_OWN_CLASS = re.compile(r"^vtjobs(\.\w+)+: ")
# A lab's own part is compiled from the source that came with the run, under this name.
_OWN = re.compile(rf"<(?P<part>{'|'.join(get_args(Part))}) (?P<name>\w+)>\Z")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/")
# Every traceback of a rank begins in this file: it tells where the node has vtjobs.
_FIRST = "/workers/ranks/rank.py"
_RUN_IN_RANKS = ("/workers/", "/jobs/")


class Place(Value, frozen=True):
    """A line of the user's code."""

    file: str
    """Name of the file, without its folder; empty where only the part is known."""
    line: int
    part: str = ""
    """Which of a run's parts the file defines, such as `head`; empty: another file."""
    name: str = ""
    """Of the class or function that is the part."""

    def __str__(self) -> str:
        if self.file:
            return f"{self.file}:{self.line}"
        return f"{self.part} {self.name}, line {self.line}"


def own_file(part: Part, name: str) -> str:
    """Return the name under which the source of a lab's own part is compiled."""
    return f"<{part} {name}>"


def message_of(error: str, signature: str) -> str:
    """Return the exception's own line in full, with its numbers.

    Args:
        error: the stored traceback, or the text of an error that no rank raised.
        signature: where there is no such text, it is what is known; what an agent put before the
            exception, such as which node disappeared, stays before it.
    """
    frames = list(_FRAME.finditer(error))
    lines = error[frames[-1].end() if frames else 0 :].split("\n")
    # Below a frame its code is indented; a text without frames begins with its line.
    own = next((line for line in lines if line.strip() and line[0] != " "), "").strip()
    kind = own.partition(":")[0].rpartition(".")[2]
    before, found, _ = signature.partition(kind) if kind else ("", "", "")
    # What vtjobs raises is a sentence; the path of its class says nothing to a user.
    own = _OWN_CLASS.sub("", own)
    return (before + own if found else own) or signature


def is_traceback(error: str) -> bool:
    """Return whether a stored error is that of an exception in a rank."""
    return _FRAME.search(error) is not None


def place_of(error: str) -> Place | None:
    """Return the innermost line of the user's code in a traceback, or None where there is none."""
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(error)]
    roots = [file.removesuffix(_FIRST) for file, _ in frames if file.endswith(_FIRST)]
    ours = tuple(f"{root}{room}" for root in (*roots, _own_root()) for room in _RUN_IN_RANKS)
    for file, line in reversed(frames):
        if own := _OWN.match(file):
            return Place("", line, own["part"], own["name"])
        if file[0] != "<" and not file.startswith(ours) and not _INSTALLED.search(file):
            return Place(Path(file).name, line)
    return None


def _own_root() -> str:
    return str(Path(__file__).parents[2])

"""The mistakes of one grid's file, gathered while its names are resolved."""

from collections.abc import Iterable
from pathlib import Path

from ..errors import Problem
from ..strict_yaml import Document, Path_


class Mistakes:
    """What is wrong with a grid's file; each mistake once."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Problem] = []

    @property
    def folder(self) -> Path:
        """Of the file: where the names of files in it start."""
        return Path(self.document.file).parent if self.document.file else Path()

    def at(self, path: Path_, message: str, fix: str = "") -> None:
        """Take down what is wrong at a path of the file."""
        self.add([self.document.problem(path, message, fix)])

    def add(self, problems: Iterable[Problem]) -> None:
        """Take down mistakes."""
        self.found += [problem for problem in problems if problem not in self.found]

"""What is gathered while the names of one grid's file are resolved: mistakes, and sources."""

from collections.abc import Iterable
from pathlib import Path

from ..errors import Problem
from ..strict_yaml import Document, Path_
from .own_source import Sources


class Mistakes:
    """What is wrong with a grid's file, each mistake once, and the files that it names."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Problem] = []
        self.sources = Sources(Path(document.file).parent if document.file else Path())

    def at(self, path: Path_, message: str, fix: str = "") -> None:
        """Take down what is wrong at a path of the file."""
        self.add([self.document.problem(path, message, fix)])

    def add(self, problems: Iterable[Problem]) -> None:
        """Take down mistakes."""
        self.found += [problem for problem in problems if problem not in self.found]

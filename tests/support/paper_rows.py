"""The page that says, row by row, what of the papers is here and which tests hold it.

python -m tests.support.paper_rows      write docs/papers-rows.md anew

A test names its rows by `@pytest.mark.paper("DR-01")`; `paper_rows.yaml` says what each row is.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "papers-rows.md"
# What the first letters of a row's name stand for.
PARTS = {
    "DR": "DRLoc",
    "RV": "RelViT",
    "GR": "Grafit (thesis, chapter 2)",
    "DE": "DeiT (thesis, chapter 3)",
    "CA": "CaiT (thesis, chapter 3)",
    "RM": "ResMLP (thesis, chapter 4)",
    "PC": "PatchConvNet (thesis, chapter 5)",
    "D3": "DeiT III (thesis, chapter 6)",
    "VA": "Seeds and comparisons (all three)",
    "OR": "What a grid needs (all three)",
}
STATES = {"whole": "yes", "means": "needs GPUs", "partly": "partly"}
HEAD = """\
# The papers, row by row

What the three works describe, a line for each. *yes*: it is here, and the named tests fail if it breaks. *needs GPUs*: a claim or a
printed result; the grid, the command and the comparison are here, and the training itself was not done. *partly*: the last column says
what is missing. *core* rows are what training grids on small datasets needs, *wide* ones belong to a described method, and *far* ones
need ImageNet-21k, another framework or more GPUs than a lab has.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """Something that a paper describes."""

    name: str
    what: str
    where: str
    tier: str
    state: str
    lacks: str = ""


@cache
def rows() -> Mapping[str, PaperRow]:
    """Return all rows by name, in the order of the file."""
    text = (TESTS / "support" / "paper_rows.yaml").read_text("utf-8")
    return {name: PaperRow(name=name, **fields) for name, fields in yaml.safe_load(text).items()}


@cache
def tests_of() -> Mapping[str, tuple[str, ...]]:
    """Return row -> the tests that name it, each as FILE::FUNCTION below tests/."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for function, names in _marked(ast.parse(path.read_text("utf-8"))):
            for name in names:
                found.setdefault(name, []).append(f"{path.relative_to(TESTS)}::{function}")
    return {name: tuple(tests) for name, tests in found.items()}


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.paper":
                    yield node.name, [ast.literal_eval(argument) for argument in mark.args]


def counts() -> Mapping[str, Counter[str]]:
    """Return tier -> state -> rows."""
    found: dict[str, Counter[str]] = {}
    for row in rows().values():
        found.setdefault(row.tier, Counter())[row.state] += 1
    return found


def page() -> str:
    """Return the page."""
    lines = ["| tier | rows | yes | needs GPUs | partly |", "|---|---|---|---|---|"]
    for tier, states in counts().items():
        numbers = [sum(states.values()), *(states[state] for state in STATES)]
        lines.append(f"| {tier} | {' | '.join(map(str, numbers))} |")
    for prefix, title in PARTS.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| row | what | where | tier | here | tests, or what is missing |",
        ]
        lines.append("|---|---|---|---|---|---|")
        lines += [_line(row) for row in rows().values() if row.name.startswith(f"{prefix}-")]
    return HEAD + "\n".join(lines) + "\n"


def _line(row: PaperRow) -> str:
    tests = ", ".join(f"`{test}`" for test in tests_of().get(row.name, ()))
    last = " ".join(filter(None, [row.lacks, tests]))
    columns = (row.name, row.what, row.where, row.tier, STATES[row.state], last)
    return f"| {' | '.join(text.replace('|', '/') for text in columns)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

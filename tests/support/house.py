"""Print figures of the code and the documents: `python -m tests.support.house [CHECKOUT]`.

They show where reading costs most: size, complexity, nesting, untyped documents, long sentences.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOMS = ("analysis", "commands", "db", "jobs", "orchestrator", "web", "workers")
BRANCHES = (
    *(ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.comprehension),
    ast.match_case,
)
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(root: Path) -> list[Path]:
    """Return the product's modules, without migrations."""
    found = [path for room in ROOMS for path in (root / room).rglob("*.py")]
    return sorted(path for path in [*found, root / "cli.py"] if "versions" not in path.parts)


def complexity(function: Function) -> int:
    """Return the cyclomatic complexity as radon counts it: boolean operators included."""
    found = 1
    for node in ast.walk(function):
        found += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
    return found


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Return how deep the deepest block of a function lies."""
    blocks = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
    return max(
        [depth]
        + [
            nesting(child, depth + isinstance(child, blocks))
            for child in ast.iter_child_nodes(node)
        ]
    )


def functions(paths: Sequence[Path]) -> Iterator[Function]:
    """Yield every function of the modules."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function):
                yield node


def tokens(text: str) -> tuple[int, int]:
    """Return the number of tokens of code and of lines that hold some."""
    found = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in SKIPPED and token.string
    ]
    return len(found), len({token.start[0] for token in found})


def sentences(root: Path) -> list[int]:
    """Return the length in words of each sentence of the documents' prose."""
    found: list[int] = []
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        lines = [line for line in text.split("\n") if not line.startswith(("|", "#"))]
        prose = re.sub(r"`[^`]*`", "code", "\n".join(lines))
        for paragraph in re.split(r"\n\s*\n|\n- |\n\d+\. ", prose):
            for sentence in re.split(r"(?<=[.?!])\s+", paragraph):
                if words := len(re.findall(r"[\w'-]+", sentence)):
                    found.append(words)
    return found


def spread(values: Sequence[float]) -> str:
    """Return median, 90th percentile and maximum."""
    ordered = sorted(values)
    tenth = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return f"{statistics.median(ordered):g} / {tenth:g} / {ordered[-1]:g}"


def figures(root: Path) -> dict[str, str]:
    """Return every figure by its name."""
    paths = sources(root)
    texts = [path.read_text() for path in paths]
    lines = [line for text in texts for line in text.splitlines()]
    made = list(functions(paths))
    complex_ = [complexity(function) for function in made]
    counted = [tokens(text) for text in texts]
    untyped = sum(text.count("dict[str, Any]") for text in texts)
    subscripts = sum(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
        for text in texts
        for node in ast.walk(ast.parse(text))
    )
    length = [(function.end_lineno or 0) - function.lineno + 1 for function in made]
    below = sum(len(re.findall(r"^    \w+: [^\n#]+\n    # ", text, re.M)) for text in texts)
    return {
        "modules / lines": f"{len(paths)} / {len(lines)}",
        "module, lines: median / p90 / max": spread([text.count("\n") for text in texts]),
        "modules over 400 lines": str(sum(text.count("\n") > 400 for text in texts)),
        "functions": str(len(made)),
        "function, lines: median / p90 / max": spread(length),
        "complexity: mean": f"{statistics.fmean(complex_):.2f}",
        "complexity: median / p90 / max": spread(complex_),
        "complexity above 10": f"{100 * sum(c > 10 for c in complex_) / len(made):.1f} %",
        "nesting: median / p90 / max": spread([nesting(function) for function in made]),
        "tokens per line of code": f"{sum(t for t, _ in counted) / sum(n for _, n in counted):.1f}",
        "lines over 100 columns": f"{100 * sum(len(line) > 100 for line in lines) / len(lines):.1f} %",
        "dict[str, Any] per 1,000 lines": f"{1000 * untyped / len(lines):.1f}",
        "subscripts by a string": str(subscripts),
        "comments below a field": str(below),
        "documents, words a sentence: median / p90 / max": spread(sentences(root)),
    }


def main(arguments: Sequence[str]) -> int:
    """Print the figures of one checkout, or of two side by side."""
    roots = [Path(one) for one in arguments] or [Path(__file__).resolve().parents[2]]
    tables = [figures(root) for root in roots]
    for name in tables[0]:
        print("| " + " | ".join([name, *(table[name] for table in tables)]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

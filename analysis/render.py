"""Print a report's cells: terminal table, Markdown, LaTeX (booktabs), CSV. Rounding happens here and only here."""

import csv
import io
from typing import Any

FORMATS = ("table", "markdown", "latex", "csv", "json")

_LATEX = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "_": r"\_",
        "#": r"\#",
        "$": r"\$",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)


def columns(cells: list[dict[str, Any]]) -> list[str]:
    """Return the headings: axes that the cells differ in come after the head."""
    axes = sorted({name for cell in cells for name in cell["axes"]})
    varied = [name for name in axes if len({str(cell["axes"].get(name)) for cell in cells}) > 1]
    recipe = ["recipe"] if len({cell["recipe"] for cell in cells}) > 1 else []
    return ["backbone", "dataset", "head", *varied, *recipe]


def rows(cells: list[dict[str, Any]], *, plus_minus: str = "±") -> tuple[list[str], list[list[str]]]:
    """Return headings and cells as text: `97.10 ± 0.31`, `n=3/5, 1 failed`, gains with their sign."""
    names = columns(cells)
    metric = cells[0]["metric"]
    heading = [*names, metric, "n", f"gain over {BASELINE_WORD}", "best − last epoch"]
    body = [
        [
            *(str(cell.get(name, cell["axes"].get(name, ""))) for name in names),
            score(cell, plus_minus),
            count(cell),
            "" if cell["gain"] is None else f"{cell['gain']:+.2f}",
            "" if cell["best_minus_last"] is None else f"{cell['best_minus_last']:.2f}",
        ]
        for cell in cells
    ]
    return heading, body


BASELINE_WORD = "supervised"


def score(cell: dict[str, Any], plus_minus: str = "±") -> str:
    """Return mean ± sample standard deviation over seeds; no ± at n = 1."""
    if cell["mean"] is None:
        return "—"
    return f"{cell['mean']:.2f}" if cell["std"] is None else f"{cell['mean']:.2f} {plus_minus} {cell['std']:.2f}"


def count(cell: dict[str, Any]) -> str:
    """Return `n=3` where all planned seeds are in, else `n=3/5, 1 failed, 1 running`."""
    if cell["n"] == cell["planned"]:
        return f"n={cell['n']}"
    missing = ", ".join(f"{number} {state}" for state, number in sorted(cell["states"].items()))
    return f"n={cell['n']}/{cell['planned']}" + (f", {missing}" if missing else "")


def notes(cells: list[dict[str, Any]]) -> list[str]:
    """Return what must be said beside the numbers."""
    cell = cells[0]
    epoch = sorted({epoch for cell in cells for epoch in cell["epochs"]})
    when = f"epoch {epoch[0]}" if len(epoch) == 1 else "the last epoch"
    found = [f"{cell['metric']} on {cell['set']} at {when}; ± is the sample standard deviation over seeds (ddof 1)."]
    for cell in cells:
        if cell["missing_seeds"]:
            label = " ".join(str(cell[name]) for name in ("backbone", "dataset", "head"))
            found.append(f"{label}: seeds {', '.join(map(str, cell['missing_seeds']))} are missing.")
    resumed = sum(cell["resumed"] for cell in cells)
    if resumed:
        inexact = sum(cell["resumed_inexactly"] for cell in cells)
        how = "all bit for bit" if not inexact else f"{inexact} of them not bit for bit"
        found.append(f"{resumed} runs were interrupted and resumed, {how}.")
    return found


def markdown(cells: list[dict[str, Any]]) -> str:
    """Return a Markdown table with its notes."""
    heading, body = rows(cells)
    lines = [heading, ["---"] * len(heading), *body]
    table = "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
    return table + "\n\n" + "\n".join(notes(cells)) + "\n"


def latex(cells: list[dict[str, Any]]) -> str:
    """Return a booktabs table."""
    heading, body = rows(cells, plus_minus=r"$\pm$")
    left = len(columns(cells))
    escaped = [[_tex(text) for text in line] for line in (heading, *body)]
    lines = [" & ".join(line) + r" \\" for line in escaped]
    caption = " ".join(_tex(note) for note in notes(cells))
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            r"\begin{tabular}{" + "l" * left + "r" * (len(heading) - left) + "}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{caption}}}",
            r"\end{table}",
            "",
        ]
    )


def _tex(text: str) -> str:
    parts = text.split(r"$\pm$")
    done = [part.translate(_LATEX).replace("±", r"$\pm$").replace("−", "$-$").replace("—", "---") for part in parts]
    return r"$\pm$".join(done)


def as_csv(cells: list[dict[str, Any]]) -> str:
    """Return one line per cell with full precision; an empty field is a number that does not exist."""
    stream = io.StringIO()
    names = columns(cells)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        [*names, "metric", "set", "n", "planned", "mean", "std", "gain", "best_minus_last", "seeds", "values"]
    )
    for cell in cells:
        shown = [cell.get(name, cell["axes"].get(name, "")) for name in names]
        numbers = [cell[name] for name in ("n", "planned", "mean", "std", "gain", "best_minus_last")]
        seeds, values = " ".join(cell["values"]), " ".join(map(repr, cell["values"].values()))
        writer.writerow(
            [*shown, cell["metric"], cell["set"], *("" if x is None else x for x in numbers), seeds, values]
        )
    return stream.getvalue()

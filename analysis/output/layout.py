"""Tables of text, laid out as Markdown or LaTeX (booktabs)."""

from dataclasses import dataclass, field

from ...jobs.names import one_line

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


# What pdflatex has no letter for, or another one.
_SIGNS = {
    "±": r"$\pm$",
    "−": "$-$",
    "—": "---",
    "α": r"$\alpha$",
    "χ": r"$\chi$",
    "²": "$^2$",
    "₀": "$_0$",
    "≥": r"$\geq$",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "�": "?",
}


@dataclass(slots=True, kw_only=True)
class Table:
    """A table as text, before it is laid out."""

    heading: list[str]
    body: list[list[str]]
    notes: list[str] = field(default_factory=list)
    labels: int = 0
    """The leading columns that are words."""
    bold: frozenset[tuple[int, int]] = frozenset()
    """Places in the body, row and column: The best mean of its dataset, of a cell with all its
    seeds.
    """


def said(table: Table, sign: str = "Bold") -> list[str]:
    """Return the notes, with what bold means first.

    Where there is no bold another sign stands for it.
    """
    means = f"{sign}: best mean on its dataset; all planned seeds of the cell have finished."
    return [*([means] if table.bold else []), *table.notes]


def markdown(table: Table) -> str:
    """Return a Markdown table with its notes."""
    body = [
        [f"**{text}**" if (row, column) in table.bold else text for column, text in enumerate(line)]
        for row, line in enumerate(table.body)
    ]
    lines = [table.heading, ["---"] * len(table.heading), *body]
    text = "\n".join(
        "| " + " | ".join(one_line(cell).replace("|", r"\|") for cell in line) + " |"
        for line in lines
    )
    return text + "\n\n" + "\n".join(map(one_line, said(table))) + "\n"


def latex(table: Table) -> str:
    """Return a booktabs table."""
    escaped = [[_tex(text) for text in line] for line in (table.heading, *table.body)]
    for row, column in table.bold:
        escaped[row + 1][column] = rf"\textbf{{{escaped[row + 1][column]}}}"
    lines = [" & ".join(line) + r" \\" for line in escaped]
    caption = " ".join(_tex(note) for note in said(table))
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            r"\begin{tabular}{"
            + "l" * table.labels
            + "r" * (len(table.heading) - table.labels)
            + "}",
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
    done = one_line(text).translate(_LATEX)
    for sign, command in _SIGNS.items():
        done = done.replace(sign, command)
    return done

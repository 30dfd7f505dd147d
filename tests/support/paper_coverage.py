"""The page that says what of the papers is here, made from their records and the ready grids.

python -m tests.support.paper_coverage      write docs/papers.md anew
"""

import textwrap
from pathlib import Path

from vtjobs.analysis.findings.against import Standing
from vtjobs.analysis.findings.coverage import TableCoverage, coverage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers.md"
PAPERS = {
    "drloc": "Liu et al. 2021, Efficient Training of Visual Transformers with Small Datasets",
    "relvit": "Camporese et al. 2022, Where are my Neighbors? Exploiting Patches Relations in"
    " Self-Supervised Vision Transformer",
    "thesis": "Touvron 2022, thesis (DeiT, CaiT, ResMLP, PatchConvNet, DeiT III and more)",
}
HEAD = """\
# What of the papers is here

All printed numbers of three works ship with vtjobs (`vtjobs papers show drloc:4`). A **ready grid** runs what is behind a table:
`vtjobs init --from drloc-table4` copies one, and `vtjobs against drloc:4` compares your runs with the printed numbers. The tables
below are made from the records and the grids. A table's grids run fewer scores than are printed where vtjobs lacks a method, such as
Cascade Mask R-CNN; where several are named, each runs a part.

No published result has been reproduced with vtjobs yet: that takes GPUs and the datasets. The last section says what was checked
instead. [The papers, row by row](papers-rows.md) lists what they describe, with the tests that hold it.
"""
TAIL = """\
## What was checked, and what was not

| part | checked | not checked |
|---|---|---|
| losses of DRLoc and RelViT | against their equations, and against the published programs | the accuracies that they lead to |
| losses of Grafit | against their equations, as no program was published | the accuracies that they lead to |
| recipes | each value against the text and the published program; `vtjobs show` says which it is | whole trainings |
| architectures, and the changes of ResMLP's ablation | parameters and FLOPs against the printed ones | weights of the authors of CvT and PatchConvNet |
| datasets | small files in the published layouts, with their checksums | the real archives of sets that need a registration |
| ready grids | a cell of each, from submission to the comparison, on a few generated images (`make demo-papers`) | the other cells |
| schedules, optimizers, Mixup, EMA | against timm and the formulas in the papers | |
| resume | bit for bit, on one and two CPU ranks, killed at any moment | on GPUs with NCCL |
| fp16 and bf16 | on CPU | speed and accuracy on V100 and A100 |
| maps of `visualize` | attention against timm's own without fused kernels, class activation and relations against their formulas | on weights that were trained on ImageNet |
| segmentation | parameters of UperNet against the printed ones, scores against scikit-learn, tables 12 and 13 of DRLoc on a few generated images | on ADE20K; the published program's normalisation over all GPUs is not there |
| detection | losses and boxes of Mask R-CNN against torchvision's, tables 10 and 11 of DRLoc on a few generated images | on COCO; Cascade Mask R-CNN is not there |
| which ranking Grafit's mean average precision has | conditioned by the coarse class, as a comparison of tables 2.4 and 2.7 shows | tables 2.6 and 2.14: their text does not say |
| scores by nearest neighbours | against scikit-learn | the 127 coarse classes of ImageNet: there is no such dataset |
"""


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(_section(paper, title) for paper, title in PAPERS.items()), TAIL])


def _section(paper: str, title: str) -> str:
    tables = coverage(paper, [])
    run = [table for table in tables if table.grids]
    rows = [f"| {table.table} | {_grids(table)} | {_reached(table)} |" for table in run]
    rest = [table.table for table in tables if not table.grids]
    lines = [
        f"## {paper}: {title}",
        "",
        "| table | ready grid | printed scores that it runs |",
        "|---|---|---|",
        *rows,
    ]
    if rest:
        text = f"Recorded, without a ready grid: {', '.join(rest)}."
        lines += ["", *textwrap.wrap(text, 128, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def _grids(table: TableCoverage) -> str:
    return ", ".join(f"`{name}`" for name in table.grids)


def _reached(table: TableCoverage) -> str:
    if not table.accuracies:
        return "no scores are printed"
    without = table.standings.get(Standing.NO_GRID, 0)
    return f"{table.accuracies - without} of {table.accuracies}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

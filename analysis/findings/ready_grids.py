"""How the runs behind a paper's numbers are made: as the ready grid of the table makes them.

A cell is compared with a number where its settings are those of the ready grid's cell, whatever
its grid, its recipe's name or its labels are.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from ...jobs.grid import catalogue, fidelity
from ...jobs.grid.checks import grid_document
from ...jobs.grid.load import take_in
from ...jobs.run.selector import axis_text
from ...jobs.run.settings import STAGE, CellSettings
from ...jobs.values import Value
from .matching import BACKBONES, FINER, LOWRES, OF_TASKS, Made, is_recorded
from .published import Published

_DEIT = ("thesis-deit", "thesis-deit-384", "thesis-distilled", "thesis-distilled-384")
_CAIT = ("thesis-cait", "thesis-cait-384", "thesis-cait-distilled", "thesis-cait-distilled-384")
# Tables whose grid is not called PAPER-tableTABLE. RelViT's table 3 has rows of DRLoc's table 4.
GRIDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("relvit", "3"): ("relvit-table3", "drloc-table4"),
    ("relvit", "fig4"): ("relvit-figure4",),
    ("thesis", "2.4"): ("thesis-table2-7",),
    ("thesis", "2.6"): ("thesis-table2-14",),
    ("thesis", "3.3"): _DEIT,
    ("thesis", "3.4.4-text"): ("thesis-cifar10",),
    ("thesis", "3.5"): _DEIT,
    ("thesis", "5.3.4-text"): ("thesis-attention-pooling",),
    ("thesis", "3.5.3-text"): ("thesis-table3-11", "thesis-fixed-factors"),
    ("thesis", "3.6.3-text"): ("thesis-cait",),
    ("thesis", "3.7.2.4-text"): ("thesis-cait",),
    ("thesis", "3.8"): ("thesis-table3-8", "thesis-table3-8-384"),
    ("thesis", "3.10"): ("thesis-deit", "thesis-deit-384"),
    ("thesis", "3.14"): ("thesis-cait-distilled",),
    ("thesis", "3.15"): _CAIT,
    ("thesis", "3.17"): _CAIT,
    ("thesis", "3.19"): ("thesis-table3-19", "thesis-cait", "thesis-cait-distilled"),
    ("thesis", "3.20"): ("thesis-table3-20", *_CAIT),
    ("thesis", "3.22"): _CAIT,
    ("thesis", "4.3"): ("thesis-resmlp", "thesis-table4-3"),
    ("thesis", "5.1"): ("thesis-patchconvnet",),
    ("thesis", "6.3.4-show-case"): ("thesis-seeds",),
    ("thesis", "6.6"): ("thesis-lowres", "thesis-deit3"),
    ("thesis", "6.7"): ("thesis-deit3", "thesis-deit3-384"),
    ("thesis", "6.15"): ("thesis-deit3",),
    ("thesis", "fig6.7"): ("thesis-seeds",),
}
# What the papers' records call a recipe -> that of a chain's last stage.
RECIPES = {
    "drloc_scratch": "drloc-scratch",
    "drloc_finetune": "drloc-finetune",
    "drloc_ade20k": "upernet",
    "drloc_coco": "mask-rcnn",
    "native_vt_defaults": "drloc-scratch",
    "relvit_downstream_only": "relvit-joint",
    "relvit_downstream_only_variants": "relvit-joint",
    "relvit_pretrain_finetune": "relvit-finetune",
    "relvit_supervised_pretrain_finetune": "relvit-finetune",
    "deit": "deit",
    "deit_distilled": "deit",
    "deit_cifar10_scratch": "deit",
    "deit_transfer": "deit-transfer",
    "cait": "cait",
    "cait_distilled": "cait",
    "cait_transfer": "deit-transfer",
    "resmlp": "resmlp",
    "patchconvnet_1k": "patchconvnet",
    "rsb_a2": "resnet50-a2",
    "rsb_a2_class_attention": "resnet50-a2",
    "deit3_1k": "deit3-1k",
    "grafit": "grafit",
    "grafit_transfer": "grafit-transfer",
}
# Of a recipe that of fine-tuning at another resolution.
_FINER = {"deit": "deit-finetune", "cait": "cait-finetune", "deit3-1k": "deit3-finetune"}
# They decide how a step is computed, not what it is meant to be.
_NO_DIFFERENCE = frozenset(
    {
        "fidelity",
        "virtual_ranks",
        "precision",
        "tf32",
        "channels_last",
        "compile",
        "deterministic",
        "pipeline",
    }
)
# Parameters of heads for which a number is printed, and no value where the backbone is a rare one.
_MAY_BE_OPEN = ("weight",)
# As many differences are named.
_NAMED = 4


class Reference(Value, frozen=True, kw_only=True):
    """A cell of a ready grid, as the run behind a record was made."""

    grid: str
    made: Made
    unpublished: frozenset[str]
    """Parameters of its head that nobody published: ours may have another value."""


def grids_of(paper: str, table: str) -> tuple[str, ...]:
    """Return the ready grids of a paper's table; none where there is no such grid."""
    usual = f"{paper}-table{table.replace('.', '-')}"
    known = (usual,) if usual in catalogue.grid_names() else ()
    return GRIDS.get((paper, table), known)


def references(paper: str, record: Published, presets: tuple[str, ...] = ()) -> list[Reference]:
    """Return the cells of ready grids that make a record's number.

    Args:
        paper: of the record.
        record: one of the paper's.
        presets: what `presets_of` returned, with which the ready grid is expanded; none: paper.
    """
    return [
        alike
        for grid in grids_of(paper, record.table)
        # A program may train for other epochs than its paper says: the text decides on the cell.
        for reference, alike in zip(_cells(grid), _cells(grid, *presets), strict=True)
        if reference.made.recipe == _recipe(record)
        and is_recorded(reference.made, record, paper)
        and record.epochs in (None, epochs(reference.made, record))
    ]


def why_none(record: Published) -> str:
    """Return why no ready grid makes a record's number."""
    names = BACKBONES.get(record.backbone, (record.backbone,))
    if record.recipe not in RECIPES:
        return f"recipe {record.recipe or 'unknown'} is not in vtjobs' catalogue"
    if not any(name in catalogue.backbones() for name in names):
        return f"backbone {record.backbone} is not in vtjobs' catalogue"
    return "no grid of vtjobs' catalogue makes this number"


def epochs(made: Made, record: Published) -> int:
    """Return the epochs that a record counts: at another resolution, those before fine-tuning."""
    begins = record.protocol in (FINER, LOWRES)
    return made.stages[-1 if begins else 0].recipe.epochs


def differences(one: Made, theirs: Reference) -> list[str]:
    """Return in which settings a cell differs from the ready grid's, each with both values."""
    if len(one.stages) != len(theirs.made.stages):
        return [f"{len(one.stages)} stages, in {theirs.grid} {len(theirs.made.stages)}"]
    found = [
        f"{'' if number == 0 else 'before it, '}{name} is {axis_text(ours)}, "
        f"in {theirs.grid} {axis_text(other)}"
        for number, (mine, published) in enumerate(zip(one.stages, theirs.made.stages, strict=True))
        for name, ours, other in _differing(mine, published, theirs.unpublished)
    ]
    more = len(found) - _NAMED
    return found if more < 2 else [*found[:_NAMED], f"and {more} more settings"]


def presets_of(one: Made) -> tuple[str, ...]:
    """Return the presets of a cell: its recipe's, its head, and the head's (paper or code)."""
    head = one.head
    return one.stages[0].recipe.fidelity, head.name, str(head.params.get("fidelity", "paper"))


@cache
def _cells(
    grid: str, recipe: str = "paper", head: str = "", preset: str = "paper"
) -> list[Reference]:
    """Return the cells of a ready grid, expanded with presets."""
    changes: dict[str, Any] = {"train.fidelity": "code"} if recipe == "code" else {}
    if preset == "code":
        axes = grid_document(grid, changes=None).data.get("axes", {})
        changes["axes"] = {**axes, f"head.{head}.fidelity": ["code"]}
    expansion = take_in(grid, changes=changes or None).expansion
    found = []
    for cell in expansion.cells:
        chain = expansion.chain(cell)
        made = Made(
            backbone=cell.labels["backbone"],
            dataset=cell.labels["dataset"],
            recipe=cell.labels["recipe"],
            axes=cell.axes,
            stages=[one.spec.settings for one in chain],
        )
        open_ = {
            setting.name
            for one in chain
            for setting in fidelity.of_head(
                one.spec.settings.head, one.labels["backbone"], one.labels["recipe"]
            )
            if setting.source == fidelity.GIVEN and setting.name in _MAY_BE_OPEN
        }
        found.append(Reference(grid=grid, made=made, unpublished=frozenset(open_)))
    return found


def _recipe(record: Published) -> str | None:
    if record.protocol == LOWRES:
        return "deit3-finetune"
    if record.metric in OF_TASKS:
        return "relvit-pretrain"
    recipe = RECIPES.get(record.recipe or "")
    return _FINER.get(recipe or "", recipe) if record.protocol == FINER else recipe


def _differing(
    one: CellSettings, other: CellSettings, unpublished: frozenset[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name and both values of each setting that decides the result and differs."""
    theirs = dict(_settings(other))
    ours = dict(_settings(one))
    for name in dict.fromkeys([*theirs, *ours]):
        short = name.rpartition(".")[2]
        is_open = name.startswith("head.") and short in unpublished
        if ours.get(name) != theirs.get(name) and short not in _NO_DIFFERENCE and not is_open:
            yield name, ours.get(name), theirs.get(name)


def _settings(one: CellSettings) -> Iterator[tuple[str, Any]]:
    yield "backbone", one.backbone.model
    for name, value in one.backbone.args.items():
        yield f"backbone.{name}", value
    # A ready grid knows the name of a weights file, a run its content.
    yield "backbone.weights", one.backbone.weights is not None
    yield "dataset", one.dataset.name
    for name in ("train", "test", "val", "mean", "std"):
        yield f"dataset.{name}", getattr(one.dataset, name)
    yield "head", one.head.name
    for name, value in one.head.params.items():
        # Of a teacher's weights, too.
        shown = value | {"weights": None} if name == "teacher" and value != STAGE else value
        yield f"head.{one.head.name}.{name}", shown
    for name, value in one.recipe.in_full().items():
        yield f"train.{name}", value

"""What the catalogue holds: ready grids with their size, recipes with who says what."""

from collections import Counter
from typing import Any

from ...jobs.documents import Document
from ...jobs.errors import BadInput, suggest
from ...jobs.grid import catalogue, fidelity
from ...jobs.grid.load import take_in

SCHEMA_VERSION = 1
# What a recipe of our own names as its source.
OURS = "vtjobs"


class GridEntry(Document, frozen=True, kw_only=True, omit_defaults=False):
    """A ready grid."""

    schema_version: int
    grid: str
    """Its name."""
    description: str
    """What it is for."""
    cells: int
    """Of the last stage."""
    runs: int
    """Of all stages."""
    images: int
    """Images that are trained on in all runs, repetitions included."""
    datasets: list[str]
    """Their names."""
    gpu_hours: float | None
    """At the given rate of images; null without one."""


class RecipeField(Document, frozen=True, kw_only=True, omit_defaults=False):
    """A field of a recipe."""

    name: str
    value: Any
    """As the source has it."""
    code: Any
    """As the published code has it."""
    source: str
    """Who says so."""


class RecipeEntry(Document, frozen=True, kw_only=True, omit_defaults=False):
    """A recipe of the catalogue."""

    schema_version: int
    recipe: str
    """Its name."""
    source: str
    """The paper's section or table."""
    heads: dict[str, dict[str, Any]]
    """Parameters of heads that belong to it."""
    datasets: dict[str, dict[str, Any]]
    """Its values for one dataset (`NAME`, or `NAME@SIZE` at one image size) or for any."""
    fields: list[RecipeField]
    """Every field."""


def grids(rate: float | None = None) -> list[GridEntry]:
    """Return the ready grids.

    Cells of the last stage, runs, and how many images are trained on in all.

    Args:
        rate: images that a GPU trains on in a second, for the hours.
    """
    return [_grid(name, rate) for name in catalogue.grid_names()]


def _grid(name: str, rate: float | None) -> GridEntry:
    intake = take_in(name)
    found = intake.expansion
    images = 0
    for cell, runs in Counter(run.cell for run in found.runs).items():
        images += runs * found.cells[cell].spec.settings.images_seen
    return GridEntry(
        schema_version=SCHEMA_VERSION,
        grid=name,
        description=intake.grid.description,
        cells=len(found.ends()),
        runs=len(found.runs),
        images=images,
        datasets=sorted({cell.labels["dataset"] for cell in found.cells}),
        gpu_hours=round(images / rate / 3600, 3) if rate is not None else None,
    )


def recipe(name: str) -> RecipeEntry:
    """Return a recipe's fields, each with what the source and its published code have, and who says
    so.

    Raises:
        BadInput: there is no such recipe.
    """
    if not catalogue.is_recipe(name):
        raise BadInput(f"no recipe {name!r}. {suggest(name, catalogue.recipe_names())}")
    file = catalogue.recipe_file(name)
    paper, code = catalogue.recipe_data(name), catalogue.recipe_data(name, "code")
    return RecipeEntry(
        schema_version=SCHEMA_VERSION,
        recipe=name,
        source=file.source,
        heads=file.heads,
        datasets=file.datasets,
        fields=[
            RecipeField(
                name=key,
                value=value,
                code=code[key] if key in file.code else value,
                source=_who(key, file, is_fast=name != catalogue.published_recipe(name)),
            )
            for key, value in paper.items()
            if key != "fidelity"
        ],
    )


def _who(field: str, file: catalogue.RecipeFile, *, is_fast: bool) -> str:
    if is_fast and field in catalogue.FAST_FIELDS:
        return fidelity.CHANGED
    if field in file.silent:
        return fidelity.SILENT_CODE
    if field in file.chosen:
        return fidelity.CHOSEN
    if field not in file.fields:
        return "default"
    return file.source if file.source == OURS else fidelity.PAPER

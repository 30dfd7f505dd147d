"""The command that shows what the catalogue holds."""

from typing import Annotated

import typer

from .options import Json

Name = Annotated[str | None, typer.Argument(help="a recipe; without one, the ready grids", show_default=False)]


Rate = Annotated[
    float | None,
    typer.Option(help="Images a GPU trains on in a second, to show GPU-hours.", min=1e-6, max=1e9, show_default=False),
]


def catalog(name: Name = None, rate: Rate = None, as_json: Json = False) -> None:
    """List the ready grids with their size; or a recipe, and who says what of it."""
    from ..analysis import catalogue, terminal

    if name is None:
        _grids(as_json, rate)
        return
    found = catalogue.recipe(name)
    if as_json:
        terminal.emit_json(found)
        return
    print(f"{found['recipe']}: {found['source']}")
    rows = []
    for field in found["fields"]:
        differs = _text(field["code"]) if field["code"] != field["value"] else ""
        rows.append([field["name"], _text(field["value"]), differs, field["source"]])
    terminal.print_table(["FIELD", "VALUE", "CODE", "WHO SAYS SO"], rows)


def _grids(as_json: bool, rate: float | None) -> None:
    from ..analysis import catalogue, terminal

    grids = catalogue.grids(rate)
    if as_json:
        terminal.emit_json(grids)
        return
    rows = []
    for one in grids:
        images = f"{one['images'] / 1e6:.3g} M"
        hours = [f"{one['gpu_hours']:,.0f}"] if rate is not None else []
        rows.append([one["grid"], str(one["cells"]), str(one["runs"]), images, *hours, one["description"]])
    cost = ["GPU-HOURS"] if rate is not None else []
    terminal.print_table(["GRID", "CELLS", "RUNS", "IMAGES", *cost, "WHAT"], rows, right=(1, 2, 3, 4)[: 3 + len(cost)])


def _text(value: object) -> str:
    return "–" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)

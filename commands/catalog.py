"""The command that shows what the catalogue holds."""

from typing import Annotated

import typer

from .options import Json

Name = Annotated[str | None, typer.Argument(help="a recipe; without one, the ready grids", show_default=False)]


def catalog(name: Name = None, as_json: Json = False) -> None:
    """List the ready grids with their size; or a recipe, and who says what of it."""
    from ..analysis import catalogue, terminal

    if name is None:
        _grids(as_json)
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


def _grids(as_json: bool) -> None:
    from ..analysis import catalogue, terminal

    grids = catalogue.grids()
    if as_json:
        terminal.emit_json(grids)
        return
    rows = []
    for one in grids:
        images = f"{one['images'] / 1e6:.3g} M"
        rows.append([one["grid"], str(one["cells"]), str(one["runs"]), images, one["description"]])
    terminal.print_table(["GRID", "CELLS", "RUNS", "IMAGES", "WHAT"], rows, right=(1, 2, 3))


def _text(value: object) -> str:
    return "–" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)

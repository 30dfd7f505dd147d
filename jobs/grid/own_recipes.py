"""Recipes that a grid brings itself: `recipes: {mine: {extends: deit, lr: 0.0005}}`."""

from collections.abc import Callable

from ..errors import suggest
from ..names import name_problem
from ..strict_yaml import Document, Path_
from ..values import Value
from . import catalogue
from .entries import Given


class OwnRecipe(Value, frozen=True):
    """One of them."""

    base: str
    """The recipe of the catalogue that it extends."""
    fields: Given
    """What differs."""


def own_recipes(
    document: Document, problem: Callable[[Path_, str, str], None]
) -> dict[str, OwnRecipe]:
    """Return a grid's own recipes by name.

    Args:
        document: the grid's file.
        problem: is told what is wrong with one: where, what, and how to mend it.
    """
    given = document.data.get("recipes") if isinstance(document.data, dict) else None
    found = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        if not isinstance(value, dict):
            # The schema says so.
            continue
        path, base = ("recipes", name), str(value.get("extends", ""))
        if wrong := name_problem(str(name)):
            problem(path, f"recipe {name!r}: {wrong}", "")
        elif catalogue.is_recipe(name):
            problem(path, f"recipe {name!r} is one of vtjobs", "Give yours another name")
        elif not catalogue.is_recipe(base):
            fix = suggest(base, catalogue.recipe_names())
            what = f"unknown base {base!r}" if base else "extends: is required"
            problem((*path, "extends") if base else path, f"recipe {name!r}: {what}", fix)
        else:
            fields = {key: one for key, one in value.items() if key != "extends"}
            found[name] = OwnRecipe(base, fields)
    return found

"""Where each setting of a run comes from.

The paper, its published code, or whoever wrote the grid.
"""

from collections.abc import Iterator
from typing import Any

from ..run.settings import DatasetSettings, HeadSettings, RecipeSettings
from ..values import Value
from . import catalogue
from .heads import HEADS, preset
from .recipe import proportional

PAPER = "paper"
CODE = "published code"
SILENT_CODE = "published code; the paper is silent"
CHOSEN = "vtjobs; nothing was published"
CHANGED = "changed"
GIVEN = "given; none was published"


class Setting(Value, frozen=True, kw_only=True):
    """One setting of a run, and who says so."""

    name: str
    """Of the parameter."""
    value: Any
    """As the run has it."""
    source: str
    """The paper, its published code, or whoever wrote the grid."""
    published: Any = None
    """What the source has, where the grid changed it."""


def of_head(head: HeadSettings, backbone: str, recipe: str = "") -> list[Setting]:
    """Return the settings of a published head.

    Args:
        head: as the run has it.
        backbone: its short name, for which some values were published; settings in brackets are
            left out.
        recipe: the recipe's name, which may bring parameters of the head.
    """
    name, params = head.name, head.params
    if head.is_own or name not in HEADS:
        return []
    if not HEADS[name].presets:
        return list(_chosen(head))
    fidelity = params["fidelity"]
    usual = {
        key: field.get_default(call_default_factory=True)
        for key, field in HEADS[name].model.model_fields.items()
    }
    facts = catalogue.backbones().get(backbone.partition("(")[0], {})
    published, paper = (
        usual | catalogue.recipe_head(recipe, name, which) | preset(name, which, facts, params)
        for which in (fidelity, "paper")
    )
    found = []
    for key, value in params.items():
        if key == "fidelity":
            continue
        if value != published[key]:
            source = CHANGED if published[key] is not None else GIVEN
            found.append(Setting(name=key, value=value, source=source, published=published[key]))
            continue
        source = (
            SILENT_CODE if key in HEADS[name].silent else CODE if value != paper[key] else PAPER
        )
        found.append(Setting(name=key, value=value, source=source))
    return found


def _chosen(head: HeadSettings) -> Iterator[Setting]:
    """Yield the parameters that nobody published, of a head without a program."""
    fields = HEADS[head.name].model.model_fields
    for key in sorted(HEADS[head.name].chosen):
        if head.params[key] == fields[key].default:
            yield Setting(name=key, value=head.params[key], source=CHOSEN)


def of_recipe(recipe: RecipeSettings, name: str, dataset: DatasetSettings) -> list[Setting]:
    """Return the settings of a recipe that its source does not give, or that the grid changed.

    Args:
        recipe: as the run has it.
        name: of the recipe that the grid named. A fast one is held against what was published.
        dataset: of the run, whose normalisation some recipes decide.
    """
    if not catalogue.is_recipe(name):
        return []
    file = catalogue.recipe_file(name)
    published = catalogue.recipe_data(
        catalogue.published_recipe(name), recipe.fidelity, dataset.name
    )
    if (per := published.get("lr_per")) is not None:
        published = published | {"lr": proportional(published["lr"], per, recipe.batch_size)}
    found = []
    for key, value in recipe.in_full().items():
        if key == "fidelity":
            continue
        if value != published.get(key):
            shown = value["name"] if isinstance(value, dict) else value
            changed = Setting(name=key, value=shown, source=CHANGED, published=published.get(key))
            found.append(changed)
        elif recipe.fidelity == "code" and key in file.code:
            found.append(Setting(name=key, value=value, source=CODE))
        elif key in file.silent:
            found.append(Setting(name=key, value=value, source=SILENT_CODE))
        elif key in file.chosen:
            found.append(Setting(name=key, value=value, source=CHOSEN))
    return [*found, *_normalisation(dataset, file, recipe.image_size)]


def _normalisation(
    dataset: DatasetSettings, file: catalogue.RecipeFile, image_size: int
) -> Iterator[Setting]:
    """Yield mean and std where the recipe decides them, or the grid other ones than the recipe."""
    published = file.statistics(dataset.name, channels=dataset.channels, image_size=image_size)
    for key, theirs in published.items():
        name, value = f"dataset.{key}", getattr(dataset, key)
        if value == theirs:
            yield Setting(name=name, value=value, source=SILENT_CODE)
        else:
            yield Setting(name=name, value=value, source=CHANGED, published=theirs)

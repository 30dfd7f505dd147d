"""The catalogue: ready grids, recipes, backbones and datasets that ship as data files."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ..documents import from_plain
from ..errors import BadInput, suggest
from ..run.cost import Cost, PrintedCost
from ..run.settings import BackboneSettings, DatasetSettings, RecipeSettings
from ..strict_yaml import Document, parse
from ..values import Value, changed

_ROOT = files("vtjobs.jobs") / "catalogue"


def _names(folder: str) -> list[str]:
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in (_ROOT / folder).iterdir()
        if entry.name.endswith("yaml")
    )


def _document(relative: str) -> Document:
    return parse((_ROOT / relative).read_bytes(), file=f"catalogue/{relative}")


@cache
def grid_names() -> list[str]:
    """Return the names of the built-in grids."""
    return _names("grids")


def grid_source(name: str) -> bytes:
    """Return the text of a built-in grid.

    Raises:
        BadInput: there is none of this name.
    """
    if name not in grid_names():
        raise BadInput(f"no built-in grid {name!r}. {suggest(name, grid_names())}")
    return (_ROOT / "grids" / f"{name}.yaml").read_bytes()


@cache
def recipe_names() -> list[str]:
    """Return the names of the recipes."""
    return _names("recipes")


# The ending of a recipe's name that asks for the speed of the GPU's tensor cores in place of the
# published precision, and what it changes. From V100 on every GPU can do it.
FAST = "-fast"
FAST_FIELDS: dict[str, Any] = {"precision": "fp16", "tf32": True, "channels_last": True}


def is_recipe(name: str) -> bool:
    """Whether a recipe has this name; each has a fast form as well."""
    return published_recipe(name) in recipe_names()


def published_recipe(name: str) -> str:
    """Return the recipe that a fast one is made of; of another one, its own name."""
    return name.removesuffix(FAST)


STATISTICS = ("mean", "std")


class RecipeFile(Value, frozen=True, kw_only=True):
    """A recipe of the catalogue."""

    source: str
    """The paper's section or table."""
    fields: dict[str, Any]
    silent: tuple[str, ...]
    """Fields that the source does not name: their values are those of its published code."""
    chosen: tuple[str, ...]
    """Fields that the source does not name, nor any program: vtjobs' own choice."""
    code: dict[str, Any]
    """Where the published code differs from the source."""
    heads: dict[str, dict[str, Any]]
    """Parameters of heads that belong to it."""
    datasets: dict[str, dict[str, Any]]
    """What it has for one dataset (`NAME`, `NAME@SIZE` at one image size) or for `any`: fields,
    and the normalisation's mean and std.
    """

    def on(self, dataset: str) -> dict[str, Any]:
        """Return the fields that it has for a dataset alone."""
        found = {**self.datasets.get("any", {}), **self.datasets.get(dataset, {})}
        return {key: value for key, value in found.items() if key not in STATISTICS}

    def statistics(self, dataset: str, *, channels: int, image_size: int) -> dict[str, Any]:
        """Return mean and std that it normalises a dataset with; empty: the dataset's own.

        Args:
            dataset: its name.
            channels: of its images; statistics of other channels do not fit.
            image_size: side of the input, pixels.
        """
        found: dict[str, Any] = {}
        for name in ("any", dataset, f"{dataset}@{image_size}"):
            of = self.datasets.get(name, {})
            found |= {key: of[key] for key in STATISTICS if len(of.get(key, ())) == channels}
        return found


@cache
def recipe_file(name: str) -> RecipeFile:
    """Return a recipe of the catalogue; `name` must be a recipe's, and may be the fast one's."""
    data: dict[str, Any] = dict(_document(f"recipes/{published_recipe(name)}.yaml").data)
    return RecipeFile(
        source=data.pop("source", ""),
        silent=tuple(data.pop("silent", ())),
        chosen=tuple(data.pop("chosen", ())),
        code=data.pop("code", {}),
        heads=data.pop("heads", {}),
        datasets=data.pop("datasets", {}),
        fields=data,
    )


def recipe_data(name: str, fidelity: str = "paper", dataset: str = "") -> dict[str, Any]:
    """Return the fields of a recipe as its source has them, or as its published code does.

    Those of a fast one differ in `FAST_FIELDS` from either.

    Args:
        name: of the recipe.
        fidelity: `paper` or `code`.
        dataset: for which some recipes have fields of their own; empty: for none in particular.
    """
    found = recipe_file(name)
    fields = found.fields | (found.code if fidelity == "code" else {}) | found.on(dataset)
    if name != published_recipe(name):
        fields = fields | FAST_FIELDS
    # It brings pydantic, which most commands do without.
    from .recipe import Recipe

    return Recipe.model_validate(fields).model_dump(mode="json")


def recipe_head(name: str, head: str, fidelity: str = "paper") -> dict[str, Any]:
    """Return the parameters of a head that belong to a recipe.

    None where there is no such recipe.
    """
    brought = dict(recipe_file(name).heads.get(head, {})) if is_recipe(name) else {}
    code = brought.pop("code", {})
    return brought | (code if fidelity == "code" else {})


@cache
def backbones() -> dict[str, dict[str, Any]]:
    """Return the short names of backbones with their settings."""
    return dict(_document("backbones.yaml").data)


@cache
def datasets() -> dict[str, dict[str, Any]]:
    """Return the known datasets with their facts.

    The levels of a dataset, other classes of the same images, are datasets with a key `level_of`.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, written in _document("datasets.yaml").data.items():
        facts = written | {"sets": written.get("sets", {}) | _corrupted_sets(written)}
        found[name] = facts
        for level, classes in facts.get("levels", {}).items():
            found[f"{name}_{level}"] = _at_level(name, facts, level, classes)
    return found


# Of ImageNet-C (Hendrycks and Dietterich 2019).
SEVERITIES = range(1, 6)


def corruption_groups(facts: dict[str, Any]) -> dict[str, list[str]]:
    """Return group -> the sets of its corruptions, such as `c_fog_1` to `c_fog_5`, of a dataset."""
    return {
        group: [f"c_{name}_{severity}" for name in names for severity in SEVERITIES]
        for group, names in facts.get("corruptions", {}).items()
        if isinstance(names, list)
    }


def _corrupted_sets(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    given = facts.get("corruptions", {})
    found = {}
    for sets in corruption_groups(facts).values():
        for one in sets:
            name, _, severity = one.removeprefix("c_").rpartition("_")
            folder = f"{given['below']}/{name}/{severity}/"
            found[one] = {
                "count": given["count"],
                "files": {folder: facts["classes"]},
                "crop_pct": given["crop_pct"],
            }
    return found


def _at_level(name: str, facts: dict[str, Any], level: str, classes: int) -> dict[str, Any]:
    own = {
        "title": f"{facts['title']}; classes by {level}",
        "classes": classes,
        "fingerprint": f"{facts['fingerprint']};{level}",
        "fetched_as": facts.get("fetched_as", name),
        "level_of": name,
    }
    return {key: value for key, value in (facts | own).items() if key != "levels"}


def same_images(name: str) -> list[str]:
    """Return the known datasets with the same images and other classes."""
    known = datasets()
    root = known.get(name, {}).get("level_of", name)
    return [
        other
        for other, facts in known.items()
        if other != name and facts.get("level_of", other) == root
    ]


@cache
def archives() -> dict[str, dict[str, Any]]:
    """Return dataset -> where it is to be had, for those that vtjobs does not download."""
    return dict(_document("archives.yaml").data)


def backbone(name: str) -> BackboneSettings:
    """Return a backbone with a short name as a run has it, without weights."""
    found = backbones()[name]
    return BackboneSettings(model=found["model"], args=found.get("args", {}), weights=None)


def dataset(name: str) -> DatasetSettings:
    """Return a known dataset as a run has it."""
    return from_plain(datasets()[name] | {"name": name}, DatasetSettings)


def sets_of(dataset: DatasetSettings) -> list[str]:
    """Return the known sets of a run's dataset; an image folder may have further ones."""
    further = datasets().get(dataset.name, {}).get("sets", {})
    return ["train", "test", *(["val"] if dataset.val is not None else []), *further]


def recipe_on(set_name: str, dataset: DatasetSettings, recipe: RecipeSettings) -> RecipeSettings:
    """Return the recipe that a set is scored with; of one whose images are cropped, no crop."""
    facts = datasets().get(dataset.name, {}).get("sets", {}).get(set_name, {})
    crop_pct = facts.get("crop_pct")
    return recipe if crop_pct is None else changed(recipe, eval_crop_pct=crop_pct)


def printed_cost(cost: Cost) -> PrintedCost | None:
    """Return what a paper prints of a measured backbone at its size, or None.

    Of several tables, the one whose conditions are nearest to those of the measurement.
    """
    found = [
        _printed(cost, table, table["models"][cost.backbone][str(cost.image_size)])
        for table in _document("complexity.yaml").data["tables"]
        if str(cost.image_size) in table["models"].get(cost.backbone, {})
    ]
    return min(found, key=lambda one: len(one.differs), default=None)


def _printed(cost: Cost, table: Mapping[str, Any], values: Sequence[float | None]) -> PrintedCost:
    speed, megabytes = values
    assert speed is not None, "each entry has a speed"
    printed = None if megabytes is None else round(megabytes * 2**20)
    is_batch = cost.largest_batch if table["batch"] == "largest" else cost.batch == table["batch"]
    same = {
        "pass": cost.pass_ == "inference",
        "batch": is_batch,
        "precision": table["precision"] in (None, cost.precision),
    }
    differs = [name for name, is_same in same.items() if not is_same]
    peak = cost.peak_memory_bytes
    has_both = not differs and peak is not None and printed is not None
    return PrintedCost(
        source=table["source"],
        device=table["device"],
        batch=None if table["batch"] == "largest" else table["batch"],
        precision=table["precision"],
        images_per_second=float(speed),
        peak_memory_bytes=printed,
        differs=differs,
        speed_ratio=None if differs else cost.images_per_second / speed,
        memory_ratio=peak / printed if has_both else None,  # type: ignore[operator]
    )


@cache
def class_list(name: str) -> list[str]:
    """Return the class names of a list of the catalogue, sorted."""
    return (_ROOT / "lists" / f"{name}.txt").read_text("utf-8").split()

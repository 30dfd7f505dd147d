"""From the names in a grid to what they stand for.

Backbones, datasets, heads and recipes, in full.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..documents import from_plain, to_plain
from ..errors import BadInput, Problem, did_you_mean, suggest
from ..run.settings import STAGE, DatasetSettings, HeadSettings, RecipeSettings
from ..run.spec import canonical
from ..strict_yaml import Document, Path_
from ..validation import problem_of, validate
from . import catalogue, custom_head
from .entries import Entry, Given, plain
from .fit import misfits
from .heads import HEADS, preset
from .image_folder import describe_folder, file_sha256
from .model_names import model_names
from .own_recipes import own_recipes
from .recipe import Inconsistent, Recipe
from .schema import HOMES

WEIGHTS_FILES = (".safetensors", ".pth", ".pt", ".bin", ".pth.tar")
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


class Resolver:
    """Resolve names, remember the answers, and gather the mistakes."""

    def __init__(self, document: Document, data_root: Path | None = None) -> None:
        self.document = document
        self.data_root = data_root
        # The grid's `data`: val and sets.
        self.data: Given = {}
        self.problems: list[Problem] = []
        # Where data lies: a dataset's or weights file's fingerprint -> path.
        self.paths: dict[str, str] = {}
        self._cache: dict[Any, Any] = {}
        self._own = own_recipes(document, self.problem)

    def problem(self, path: Path_, message: str, fix: str = "") -> None:
        found = self.document.problem(path, message, fix)
        if found not in self.problems:
            self.problems.append(found)

    def backbone(self, entry: Entry, changes: Given) -> str | None:
        """Return the canonical JSON of a backbone, or None where it cannot be used."""
        key = ("backbone", entry.key, canonical(plain(changes)))
        if key not in self._cache:
            self._cache[key] = self._backbone(entry, changes)
        found: str | None = self._cache[key]
        return found

    def _backbone(self, entry: Entry, changes: Given) -> str | None:
        name = entry.name
        if ":" in name or "/" in name:
            self.problem(
                entry.path, f"backbone {name!r}: remote and local-dir model sources are not allowed"
            )
            return None
        known = catalogue.backbones()
        models = model_names() if name not in known else frozenset()
        if models and name.split(".")[0] not in models:
            near = did_you_mean(name, [*known, *models])
            fix = f"{near} Short names: {', '.join(known)}. Any timm model name works too"
            self.problem(entry.path, f"unknown backbone {name!r}", fix)
            return None
        if not isinstance(entry.settings, dict):
            self.problem(
                entry.path, f"backbone {name}: expected a mapping of create_model arguments"
            )
            return None
        short = known.get(name, {"model": name})
        args = {**short.get("args", {}), **entry.settings, **changes}
        weights = args.pop("weights", None)
        for arg in ("pretrained", "num_classes", "in_chans", "img_size", "checkpoint_path"):
            if arg in args:
                fix = {"img_size": "Set train.image_size", "pretrained": "Give weights: FILE"}.get(
                    arg, ""
                )
                self.problem((*entry.path, name, arg), f"{arg} is set by vtjobs", fix)
                return None
        if plain(args) != args:
            self.problem(
                entry.path,
                f"backbone {name}: arguments must be finite numbers, text, or lists of them",
            )
            return None
        return canonical(
            {
                "args": args,
                "model": short["model"],
                "weights": self._weights(entry, weights, short["model"]),
            }
        )

    def _weights(self, entry: Entry, weights: Any, model: str) -> dict[str, str] | None:
        if weights is None:
            return None
        path = Path(str(weights)).expanduser()
        named = (
            "/" not in str(weights)
            and not path.is_file()
            and not str(weights).endswith(WEIGHTS_FILES)
        )
        if named:
            if self.data_root is None:
                return {"fingerprint": f"named:{path}"}
            places = [self.data_root / "weights" / f"{path}{suffix}" for suffix in WEIGHTS_FILES]
            path = next((place for place in places if place.is_file()), places[0])
        if not path.is_file():
            fetch = weights if named else model
            fix = f"Download it once with: vtjobs data prepare weights:{fetch}"
            if not named:
                fix += f", and set weights: {fetch}"
            self.problem((*entry.path, entry.name, "weights"), f"{path}: no such file", fix)
            return None
        sha = f"sha256:{file_sha256(path)}"
        self.paths[sha] = str(path.resolve())
        return {"fingerprint": sha}

    def dataset(
        self, entry: Entry, changes: Given, recipe: str = "", image_size: int = 0
    ) -> str | None:
        """Return the canonical JSON of a dataset, or None where it cannot be used.

        Args:
            entry: the dataset as the grid has it.
            changes: settings that axes and overrides set.
            recipe: the recipe's name; some normalise in their own way.
            image_size: of the recipe, pixels.
        """
        key = ("dataset", entry.key, canonical(plain(changes)), recipe, image_size)
        if key not in self._cache:
            try:
                if not isinstance(entry.settings, dict):
                    raise BadInput(f"dataset {entry.name}: expected a mapping of settings")
                given = {**entry.settings, **changes}
                self._cache[key] = self._dataset(entry, given, recipe, image_size)
            except BadInput as error:
                self.problem(entry.path, error.problems[0].message)
                self._cache[key] = None
        found: str | None = self._cache[key]
        return found

    def _dataset(self, entry: Entry, settings: Given, recipe: str, image_size: int) -> str | None:
        known = catalogue.datasets()
        is_folder = "/" in entry.name or "path" in settings
        if not is_folder and entry.name not in known:
            fix = f"{suggest(entry.name, known)}. Give an image folder by a path with a slash"
            self.problem(entry.path, f"unknown dataset {entry.name!r}", fix)
            return None
        allowed = {"path", "mean", "std"} if is_folder else {"mean", "std"}
        for setting in settings:
            if setting not in allowed:
                where = (*entry.path, entry.name, setting)
                self.problem(where, f"unknown key {setting!r}", suggest(setting, allowed))
                return None
        folder = Path(str(settings.get("path", entry.name))).expanduser() if is_folder else None
        facts = known[entry.name] if folder is None else self._folder_facts(folder)
        if catalogue.is_recipe(recipe):
            facts = facts | catalogue.recipe_file(recipe).statistics(
                entry.name, channels=facts["channels"], image_size=image_size
            )
        facts = {**facts, **{key: settings[key] for key in ("mean", "std") if key in settings}}
        is_fit = (
            self._has_sets(entry, facts, folder)
            and self._is_normalised(entry, facts)
            and self._can_hold_out(entry, facts)
        )
        if not is_fit:
            return None
        name = "folder" if is_folder else entry.name
        found = from_plain(facts | {"name": name, "val": self.data.get("val")}, DatasetSettings)
        return canonical(to_plain(found))

    def _folder_facts(self, folder: Path) -> dict[str, Any]:
        # A folder may stand beside several recipes, and reading it takes long.
        key = ("folder", str(folder))
        if key not in self._cache:
            self._cache[key] = {**IMAGENET, "channels": 3, **describe_folder(folder)}
        facts: dict[str, Any] = self._cache[key]
        self.paths[str(facts["fingerprint"])] = str(folder.resolve())
        return facts

    def _has_sets(self, entry: Entry, facts: dict[str, Any], folder: Path | None) -> bool:
        """Return whether a dataset has the further evaluation sets that the grid names."""
        known = facts.get("sets", {})
        for name in self.data.get("sets", ()):
            is_there = name in known or (folder is not None and (folder / name).is_dir())
            if name == "train" or not is_there:
                fix = suggest(name, known) if known else ""
                self.problem(("data", "sets"), f"dataset {entry.label} has no set {name!r}", fix)
                return False
        return True

    def _is_normalised(self, entry: Entry, facts: dict[str, Any]) -> bool:
        """Return whether mean and std are numbers for each channel."""
        for setting in ("mean", "std"):
            where = (*entry.path, entry.name, setting)
            if not _are_numbers(facts[setting], facts["channels"]):
                self.problem(where, f"expected {facts['channels']} numbers")
                return False
            if setting == "std" and min(facts[setting]) <= 0:
                self.problem(where, "must be greater than 0")
                return False
        return True

    def _can_hold_out(self, entry: Entry, facts: dict[str, Any]) -> bool:
        """Return whether `data.val` leaves an image of each class on both sides."""
        val = self.data.get("val")
        if val is None:
            return True
        held, classes = round(val * facts["train"]), facts["classes"]
        if min(held, facts["train"] - held) >= classes:
            return True
        message = f"{val} of {entry.label}'s {facts['train']} training images is {held}"
        need = f"both parts need at least one image of each of the {classes} classes"
        self.problem(("data", "val"), f"{message}; {need}")
        return False

    def head(self, entry: Entry, backbone: Entry, changes: Given, recipe: str = "") -> str | None:
        """Return the canonical JSON of a head for this backbone, or None where it cannot be used.

        Args:
            entry: the head as the grid has it.
            backbone: what it stands beside; some parameters were published for one backbone.
            changes: parameters that axes and overrides set.
            recipe: the recipe's name; some recipes bring parameters of a head.
        """
        key = ("head", entry.key, backbone.name, recipe, canonical(plain(changes)))
        if key not in self._cache:
            self._cache[key] = self._head(entry, backbone, changes, recipe)
        found: str | None = self._cache[key]
        return found

    def check_head(
        self, entry: Entry, changes: Given | None = None, recipe: str = ""
    ) -> BaseModel | None:
        """Return a head's parameters as far as they need no backbone, or None where they cannot be
        used.
        """
        if custom_head.is_own(entry.name):
            self._own_head(entry, changes or {})
            return None
        if entry.name not in HEADS:
            self.problem(
                entry.path,
                f"unknown head {entry.name!r}",
                f"{suggest(entry.name, HEADS)}. Name your own class as module:Class",
            )
            return None
        given = {**entry.settings, **(changes or {})} if isinstance(entry.settings, dict) else {}
        brought = catalogue.recipe_head(recipe, entry.name, str(given.get("fidelity", "paper")))
        params, problems = self._model(HEADS[entry.name].model, entry, changes or {}, brought)
        self.problems += [problem for problem in problems if problem not in self.problems]
        return params

    def _own_head(self, entry: Entry, changes: Given) -> dict[str, Any] | None:
        """Return a lab's own head as a run has it, or None where it cannot be used."""
        if not isinstance(entry.settings, dict):
            self.problem(entry.path, f"{entry.name}: expected a mapping of settings")
            return None
        settings = {**entry.settings, **changes}
        folder = Path(self.document.file).parent if self.document.file else Path()
        try:
            if settings != plain(settings):
                raise custom_head.NotAHead(
                    "settings must be finite numbers, text, or lists of them"
                )
            source = custom_head.find(entry.name, folder=folder)
            return {
                "name": entry.name.rpartition(":")[2],
                "params": custom_head.parameters(entry.name, settings, source),
                "source": source.text,
            }
        except custom_head.NotAHead as error:
            self.problem(entry.path, f"head {entry.name}: {error}")
            return None

    def _head(self, entry: Entry, backbone: Entry, changes: Given, recipe: str) -> str | None:
        if custom_head.is_own(entry.name):
            found = self._own_head(entry, changes)
            return None if found is None else canonical(found)
        params = self.check_head(entry, changes, recipe)
        if params is None:
            return None
        values = params.model_dump(mode="json")
        if "fidelity" in values:
            published = preset(
                entry.name, values["fidelity"], catalogue.backbones().get(backbone.name, {}), values
            )
            values |= {name: value for name, value in published.items() if values[name] is None}
        if entry.name == "distill":
            values["teacher"] = self._teacher(entry, values["teacher"])
            if values["teacher"] is None:
                return None
        if values.get("weight", 0) is None:
            message = f"no published weight of {entry.name} for backbone {backbone.name}"
            self.problem(entry.path, message, f"Give one: {entry.name}: {{weight: 0.5}}")
            return None
        return canonical({"name": entry.name, "params": values})

    def _teacher(self, entry: Entry, teacher: Any) -> Any:
        """Return a teacher as a run has it, or None where it cannot be used."""
        if isinstance(teacher, str):
            # Which stage that is, expansion knows.
            return STAGE
        where: Path_ = (*entry.path, entry.name, "teacher")
        settings = (
            next(iter(teacher.values()))
            if isinstance(teacher, dict) and len(teacher) == 1
            else None
        )
        if not isinstance(settings, dict) or not settings.get("weights"):
            fix = "Name an earlier stage, or {MODEL: {weights: FILE}}"
            self.problem(where, "expected a teacher with weights", fix)
            return None
        found = self.backbone(
            Entry(name=str(next(iter(teacher))), settings=settings, path=where), {}
        )
        return json.loads(found) if found is not None else None

    def fit(self, head: str, recipe: str, dataset: str, entry: Entry) -> bool:
        """Whether a head, a recipe and a dataset, as canonical JSON, can be trained together."""
        key = ("fit", head, recipe, dataset)
        if key not in self._cache:
            found = list(
                misfits(
                    from_plain(json.loads(head), HeadSettings),
                    from_plain(json.loads(recipe), RecipeSettings),
                    from_plain(json.loads(dataset), DatasetSettings),
                    entry,
                )
            )
            for one in found:
                self.problem(*one)
            self._cache[key] = not found
        return bool(self._cache[key])

    def _model(
        self, model: type[BaseModel], entry: Entry, changes: Given, brought: Given
    ) -> tuple[BaseModel | None, list[Problem]]:
        if not isinstance(entry.settings, dict):
            return None, [
                self.document.problem(entry.path, f"{entry.name}: expected a mapping of settings")
            ]
        return validate(
            model,
            {**brought, **entry.settings, **changes},
            self.document,
            (*entry.path, entry.name),
        )

    def base_of(self, recipe: str) -> str:
        """Return the recipe of the catalogue that one of the grid's own extends; or itself."""
        own = self._own.get(recipe)
        return recipe if own is None else own.base

    def check_own_recipes(self) -> None:
        """Report what is wrong with the grid's own recipes, also where none of them is used."""
        for name in self._own:
            self.recipe(name, {}, {}, ("recipes", name))

    def recipe(
        self,
        name: str,
        changes: Given,
        sources: dict[str, Path_],
        path: Path_,
        dataset: str = "",
    ) -> str | None:
        """Return the canonical JSON of a recipe with changes, or None where it cannot be used.

        Args:
            name: a recipe's name; its mistakes are reported at `path`.
            changes: fields that differ.
            sources: where each changed field stands in the file.
            dataset: its name; some recipes have fields for one dataset alone.
        """
        if (own := self._own.get(name)) is not None:
            changes = {**own.fields, **changes}
            sources = {key: ("recipes", name, key) for key in own.fields} | sources
            name = own.base
        has_own = catalogue.is_recipe(name) and catalogue.recipe_file(name).on(dataset)
        key = ("recipe", name, canonical(plain(changes)), dataset if has_own else "")
        if key not in self._cache:
            self._cache[key] = self._recipe(name, changes, sources, path, dataset)
        found: str | None = self._cache[key]
        return found

    def _recipe(
        self, name: str, changes: Given, sources: dict[str, Path_], path: Path_, dataset: str
    ) -> str | None:
        if not catalogue.is_recipe(name):
            known = [*self._own, *catalogue.recipe_names()]
            self.problem(path, f"unknown recipe {name!r}", suggest(name, known))
            return None
        fidelity = changes.get("fidelity", "paper")
        values = {**catalogue.recipe_data(name, fidelity, dataset), **changes}
        try:
            recipe = Recipe.model_validate(values)
        except ValidationError as error:
            for found in error.errors(include_url=False):
                problem = problem_of(found, Recipe, self.document, (), HOMES)
                where = next((sources[key] for key in _keys_of(found) if key in sources), path)
                self.problem(where, problem.message, problem.fix)
            return None
        return canonical(to_plain(recipe.settings))


def _keys_of(found: Any) -> Sequence[str]:
    """Return the recipe's fields that one of pydantic's findings is about."""
    if found["loc"]:
        return [str(found["loc"][0])]
    error = found.get("ctx", {}).get("error")
    return error.fields if isinstance(error, Inconsistent) else []


def _are_numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        and all(math.isfinite(value) for value in values)
    )

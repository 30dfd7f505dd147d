"""From the names in a grid to what they stand for.

Backbones, datasets, heads and recipes, in full.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..documents import to_plain
from ..errors import BadInput, Problem, suggest
from ..run.settings import STAGE
from ..run.spec import CellSpec, canonical
from ..strict_yaml import Document, Path_
from ..validation import problem_of, validate
from ..values import changed
from . import catalogue, own_head
from .entries import Entry, Given, plain
from .fit import misfits
from .heads import HEADS, preset
from .mistakes import Mistakes
from .own_function import find_function, names_own
from .own_recipes import own_recipes
from .own_source import NotOwn, is_own
from .recipe import Inconsistent, Recipe
from .resolve_backbone import BackboneResolver
from .resolve_dataset import DatasetResolver
from .schema import HOMES


class Resolver:
    """Resolve names, remember the answers, and gather the mistakes."""

    def __init__(self, document: Document, data_root: Path | None = None) -> None:
        self.document = document
        self.mistakes = Mistakes(document)
        # The grid's `data`: val and sets.
        self.data: Given = {}
        # Where data lies: a dataset's or weights file's fingerprint -> path.
        self.paths: dict[str, str] = {}
        self._cache: dict[Any, Any] = {}
        self._own = own_recipes(document, self.problem)
        self._backbones = BackboneResolver(self.mistakes, self.paths, data_root=data_root)
        self._datasets = DatasetResolver(self.mistakes, self.paths)

    @property
    def problems(self) -> list[Problem]:
        """The mistakes found so far."""
        return self.mistakes.found

    def problem(self, path: Path_, message: str, fix: str = "") -> None:
        self.mistakes.at(path, message, fix)

    def backbone(self, entry: Entry, changes: Given) -> str | None:
        """Return the canonical JSON of a backbone, or None where it cannot be used."""
        key = ("backbone", entry.key, canonical(plain(changes)))
        if key not in self._cache:
            self._cache[key] = self._backbones.resolve(entry, changes)
        found: str | None = self._cache[key]
        return found

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
                self._cache[key] = self._datasets.resolve(
                    entry, given, data=self.data, recipe=recipe, image_size=image_size
                )
            except BadInput as error:
                self.problem(entry.path, error.problems[0].message)
                self._cache[key] = None
        found: str | None = self._cache[key]
        return found

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
        if is_own(entry.name):
            self._own_head(entry, changes or {})
            return None
        if entry.name not in HEADS:
            self.problem(
                entry.path,
                f"unknown head {entry.name!r}",
                f"{suggest(entry.name, HEADS)}. Name your own class as file.py:Class",
            )
            return None
        given = {**entry.settings, **(changes or {})} if isinstance(entry.settings, dict) else {}
        brought = catalogue.recipe_head(recipe, entry.name, str(given.get("fidelity", "paper")))
        params, problems = self._model(HEADS[entry.name].model, entry, changes or {}, brought)
        self.mistakes.add(problems)
        return params

    def _own_head(self, entry: Entry, changes: Given) -> dict[str, Any] | None:
        """Return a lab's own head as a run has it, or None where it cannot be used."""
        if not isinstance(entry.settings, dict):
            self.problem(entry.path, f"{entry.name}: expected a mapping of settings")
            return None
        settings = {**entry.settings, **changes}
        try:
            if settings != plain(settings):
                raise NotOwn("settings must be finite numbers, text, or lists of them")
            source = own_head.find(entry.name, sources=self.mistakes.sources)
            return {
                "name": entry.name.rpartition(":")[2],
                "params": own_head.parameters(settings, source),
                "source": source.text,
            }
        except NotOwn as error:
            self.problem(entry.path, f"head {entry.name}: {error}")
            return None

    def _head(self, entry: Entry, backbone: Entry, changes: Given, recipe: str) -> str | None:
        if is_own(entry.name):
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

    def fit(self, cell: CellSpec, entry: Entry) -> bool:
        """Whether the parts of a cell can be trained together.

        Args:
            cell: its parts.
            entry: the head as the grid has it.
        """
        # Of the backbone only a lab's own has a say.
        backbone = cell.backbone if '"source":' in cell.backbone else ""
        key = ("fit", backbone, cell.head, cell.recipe, cell.dataset)
        if key not in self._cache:
            found = list(misfits(cell.settings, entry))
            for one in found:
                self.problem(*one)
            self._cache[key] = not found
        return bool(self._cache[key])

    def can_start(self, cell: CellSpec, start: CellSpec | None, dataset: Entry) -> bool:
        """Return whether a cell can start as it says: from the weights of another cell, or anew.

        Args:
            cell: its parts.
            start: the other cell; None: it starts from no other.
            dataset: as the grid has it.
        """
        # Only a cell that takes a part says so in its text.
        if '"init_only":' in cell.recipe and (
            start is None or cell.settings.head.learns_from_a_stage
        ):
            message = "init_only is for a stage with init_from, whose weights it takes a part of"
            self.problem(("train", "init_only"), message, "Set it in the train: of such a stage")
            return False
        if start is None or start.settings.dataset.has_classes:
            return True
        what = "masks" if start.settings.dataset.has_masks else "objects"
        message = f"{dataset.name} cannot start from weights that were trained on {what}"
        self.problem(dataset.path, message, "Let init_from name a stage of classification")
        return False

    def _model(
        self, model: type[BaseModel], entry: Entry, changes: Given, brought: Given
    ) -> tuple[BaseModel | None, list[Problem]]:
        if not isinstance(entry.settings, dict):
            # In YAML true is no number; in Python it is.
            is_weight = type(entry.settings) in (int, float) and "weight" in model.model_fields
            fix = f"Write {entry.name}: {{weight: {entry.settings}}}" if is_weight else ""
            message = f"{entry.name}: expected a mapping of settings"
            return None, [self.document.problem(entry.path, message, fix)]
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
            own = self._own_functions(values, sources, path)
            recipe = Recipe.model_validate(values)
        except ValidationError as error:
            for found in error.errors(include_url=False):
                problem = problem_of(found, Recipe, self.document, (), HOMES)
                where = next((sources[key] for key in _keys_of(found) if key in sources), path)
                self.problem(where, problem.message, problem.fix)
            return None
        return canonical(to_plain(changed(recipe.settings, **own)))

    def _own_functions(
        self, values: Given, sources: dict[str, Path_], path: Path_
    ) -> dict[str, Any]:
        """Take a lab's own functions out of a recipe's values.

        Returns:
            The fields that they fill in a run's settings.
        """
        found: dict[str, Any] = {}
        for key in ("loss", "transform"):
            if values[key] is None or (key == "loss" and not names_own(values[key])):
                continue
            given, values[key] = values[key], "cross_entropy" if key == "loss" else "own"
            try:
                function = find_function(key, given, sources=self.mistakes.sources)
            except NotOwn as error:
                self.problem(sources.get(key, path), f"{key}: {error}")
                continue
            found |= {"loss": "own", "own_loss": function} if key == "loss" else {key: function}
        return found


def _keys_of(found: Any) -> Sequence[str]:
    """Return the recipe's fields that one of pydantic's findings is about."""
    if found["loc"]:
        return [str(found["loc"][0])]
    error = found.get("ctx", {}).get("error")
    return error.fields if isinstance(error, Inconsistent) else []

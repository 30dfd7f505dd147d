"""From a dataset's name in a grid to what it stands for."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from ..documents import from_plain, to_plain
from ..errors import suggest
from ..run.settings import DatasetSettings, Task
from ..run.spec import canonical
from ..validation import validate
from . import catalogue
from .entries import Entry, Given, plain
from .image_folder import describe_files, describe_folder, describe_masks
from .mistakes import Mistakes
from .object_folder import describe_objects
from .own_dataset import OwnDataset, facts_of, find_dataset
from .own_source import NotOwn, is_own

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_NORMALISED = ("mean", "std")
TASKS: tuple[str, ...] = get_args(Task)
_DESCRIBE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "classification": describe_folder,
    "segmentation": describe_masks,
    "detection": describe_objects,
}


class DatasetResolver:
    """Resolves datasets: those of the catalogue, image folders, and a lab's own."""

    def __init__(self, mistakes: Mistakes, paths: dict[str, str]) -> None:
        """Resolve for one grid.

        Args:
            mistakes: of the grid; filled here.
            paths: fingerprint of a dataset -> where it lies; filled here.
        """
        self._mistakes = mistakes
        self._paths = paths
        self._folders: dict[tuple[Path, str], dict[str, Any]] = {}
        self._files: dict[Path, str] = {}

    def resolve(
        self, entry: Entry, settings: Given, *, data: Given, recipe: str, image_size: int
    ) -> str | None:
        """Return the canonical JSON of a dataset, or None where it cannot be used.

        Args:
            entry: the dataset as the grid has it.
            settings: of the entry, with what axes and overrides set.
            data: the grid's `data`: val and sets.
            recipe: the recipe's name; some normalise in their own way.
            image_size: of the recipe, pixels.

        Raises:
            BadInput: its folder cannot be used.
        """
        known = self._own(entry, settings) if is_own(entry.name) else self._known(entry, settings)
        if known is None:
            return None
        facts, folder = known
        if catalogue.is_recipe(recipe):
            facts = facts | catalogue.recipe_file(recipe).statistics(
                entry.name, channels=facts["channels"], image_size=image_size
            )
        facts = {**facts, **{key: settings[key] for key in _NORMALISED if key in settings}}
        is_fit = (
            self._has_sets(entry, facts, folder, data)
            and self._is_normalised(entry, facts)
            and self._can_hold_out(entry, facts, data.get("val"))
        )
        if not is_fit:
            return None
        return canonical(to_plain(from_plain(facts | {"val": data.get("val")}, DatasetSettings)))

    def _known(self, entry: Entry, settings: Given) -> tuple[dict[str, Any], Path | None] | None:
        """Return what is known of a dataset of the catalogue or an image folder, and the folder."""
        known = catalogue.datasets()
        is_folder = "/" in entry.name or "path" in settings
        if not is_folder and entry.name not in known:
            fix = (
                f"{suggest(entry.name, known)}. Give an image folder by a path with a slash, and"
                " your own dataset as file.py:Class"
            )
            self._mistakes.at(entry.path, f"unknown dataset {entry.name!r}", fix)
            return None
        allowed = {"path", "task", *_NORMALISED} if is_folder else {*_NORMALISED}
        for setting in settings:
            if setting not in allowed:
                where = (*entry.path, entry.name, setting)
                self._mistakes.at(where, f"unknown key {setting!r}", suggest(setting, allowed))
                return None
        if not is_folder:
            return known[entry.name] | {"name": entry.name}, None
        folder = Path(os.path.expanduser(str(settings.get("path", entry.name))))
        task = settings.get("task", TASKS[0])
        if task not in TASKS:
            where = (*entry.path, entry.name, "task")
            expected = f"{', '.join(TASKS[:-1])} or {TASKS[-1]}"
            self._mistakes.at(where, f"expected {expected}, got {task!r}")
            return None
        return self._folder_facts(folder, task) | {"name": "folder", "task": task}, folder

    def _folder_facts(self, folder: Path, task: str) -> dict[str, Any]:
        # A folder may stand beside several recipes, and reading it takes long.
        if (folder, task) not in self._folders:
            described = _DESCRIBE[task](folder)
            self._folders[folder, task] = {**IMAGENET, "channels": 3, **described}
        facts = self._folders[folder, task]
        self._paths[str(facts["fingerprint"])] = str(folder.resolve())
        return facts

    def _own(self, entry: Entry, settings: Given) -> tuple[dict[str, Any], Path | None] | None:
        """Return what the grid says of a lab's own dataset, and where its files are."""
        name = entry.name
        if settings != plain(settings):
            message = f"dataset {name}: settings must be finite numbers, text, or lists of them"
            self._mistakes.at(entry.path, message)
            return None
        where = (*entry.path, name)
        given, problems = validate(OwnDataset, settings, self._mistakes.document, where)
        self._mistakes.add(problems)
        if given is None:
            return None
        try:
            source = find_dataset(name, given, sources=self._mistakes.sources)
        except NotOwn as error:
            self._mistakes.at(entry.path, f"dataset {name}: {error}")
            return None
        path = None if given.path is None else Path(os.path.expanduser(given.path))
        facts = facts_of(given, "none" if path is None else self._fingerprint(path))
        usual = (
            IMAGENET if given.channels == 3 else dict.fromkeys(_NORMALISED, [0.5] * given.channels)
        )
        return {**usual, **facts, "name": name.rpartition(":")[2], "source": source.text}, path

    def _fingerprint(self, path: Path) -> str:
        """Return that of an own dataset's files, and remember where they lie."""
        if path not in self._files:
            self._files[path] = describe_files(path)
        self._paths[self._files[path]] = str(path.resolve())
        return self._files[path]

    def _has_sets(
        self, entry: Entry, facts: dict[str, Any], folder: Path | None, data: Given
    ) -> bool:
        """Return whether a dataset has the further evaluation sets that the grid names."""
        known = facts.get("sets", {})
        for name in data.get("sets", ()):
            # Which sets a lab's own class can read, it knows alone.
            is_own_set = facts.get("source") is not None
            is_there = (
                is_own_set or name in known or (folder is not None and (folder / name).is_dir())
            )
            if name == "train" or not is_there:
                fix = suggest(name, known) if known else ""
                self._mistakes.at(
                    ("data", "sets"), f"dataset {entry.label} has no set {name!r}", fix
                )
                return False
        return True

    def _is_normalised(self, entry: Entry, facts: dict[str, Any]) -> bool:
        """Return whether mean and std are numbers for each channel."""
        for setting in _NORMALISED:
            where = (*entry.path, entry.name, setting)
            if not _are_numbers(facts[setting], facts["channels"]):
                self._mistakes.at(where, f"expected {facts['channels']} numbers")
                return False
            if setting == "std" and min(facts[setting]) <= 0:
                self._mistakes.at(where, "must be greater than 0")
                return False
        return True

    def _can_hold_out(self, entry: Entry, facts: dict[str, Any], val: float | None) -> bool:
        """Return whether `data.val` leaves an image of each class on both sides."""
        if val is None:
            return True
        held = round(val * facts["train"])
        # Images with masks or objects have no class as a whole.
        classes = facts["classes"] if facts.get("task", TASKS[0]) == TASKS[0] else 1
        if min(held, facts["train"] - held) >= classes:
            return True
        message = f"{val} of {entry.label}'s {facts['train']} training images is {held}"
        need = f"both parts need at least one image of each of the {classes} classes"
        self._mistakes.at(("data", "val"), f"{message}; {need}")
        return False


def _are_numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        and all(math.isfinite(value) for value in values)
    )

"""From a backbone's name in a grid to what it stands for."""

import os
from pathlib import Path
from typing import Any

from ..documents import to_plain
from ..errors import did_you_mean, one_of
from ..run.settings import BackboneSettings, Weights
from ..run.spec import canonical
from . import catalogue
from .entries import Entry, Given, plain
from .image_folder import file_sha256
from .mistakes import Mistakes
from .model_names import model_names
from .own_backbone import find_backbone
from .own_source import NotOwn, is_own

WEIGHTS_FILES = (".safetensors", ".pth", ".pt", ".bin", ".pth.tar")
# timm's arguments that come from elsewhere in the grid, and where to set them instead.
_SET_BY_US = {
    "pretrained": "Give weights: FILE",
    "num_classes": "",
    "in_chans": "",
    "img_size": "Set train.image_size",
    "checkpoint_path": "",
}


class BackboneResolver:
    """Resolves backbones: short names, timm's names, and a lab's own."""

    def __init__(
        self, mistakes: Mistakes, paths: dict[str, str], *, data_root: Path | None
    ) -> None:
        """Resolve for one grid.

        Args:
            mistakes: of the grid; filled here.
            paths: fingerprint of a weights file -> where it lies; filled here.
            data_root: the data folder, where it can be seen.
        """
        self._mistakes = mistakes
        self._paths = paths
        self._data_root = data_root

    def resolve(self, entry: Entry, changes: Given) -> str | None:
        """Return the canonical JSON of a backbone, or None where it cannot be used."""
        name = entry.name
        if not isinstance(entry.settings, dict):
            message = f"backbone {name}: expected a mapping of create_model arguments"
            self._mistakes.at(entry.path, message)
            return None
        short = self._known(entry)
        if short is None:
            return None
        args = {**short.get("args", {}), **entry.settings, **changes}
        weights, allowed = args.pop("weights", None), self._allowed(entry, args)
        if plain(args) != args:
            message = f"backbone {name}: arguments must be finite numbers, text, or lists of them"
            self._mistakes.at(entry.path, message)
            return None
        source = None
        if is_own(name):
            try:
                source = find_backbone(name, args, sources=self._mistakes.sources).text
            except NotOwn as error:
                self._mistakes.at(entry.path, f"backbone {name}: {error}")
                return None
        elif (arg := next((arg for arg in _SET_BY_US if arg in args), None)) is not None:
            self._mistakes.at((*entry.path, name, arg), f"{arg} is set by vtjobs", _SET_BY_US[arg])
            return None
        made = BackboneSettings(
            args=args,
            model=short["model"],
            weights=self._weights(entry, weights, short["model"], allowed),
            source=source,
        )
        return canonical(to_plain(made))

    def _known(self, entry: Entry) -> dict[str, Any] | None:
        """Return the model and arguments that a name stands for, or None where it is unknown."""
        name = entry.name
        if is_own(name):
            return {"model": name.rpartition(":")[2]}
        if "/" in name or ":" in name:
            message = f"backbone {name!r}: remote and local-dir model sources are not allowed"
            self._mistakes.at(entry.path, message, "Name your own model as file.py:function")
            return None
        known = catalogue.backbones()
        if name in known:
            return known[name]
        models = model_names()
        if models and name.split(".")[0] not in models:
            near = did_you_mean(name, [*known, *models])
            fix = (
                f"{near} Short names: {one_of(known)}. Any timm model name works too, and your own"
                " model as file.py:function"
            )
            self._mistakes.at(entry.path, f"unknown backbone {name!r}", fix)
            return None
        return {"model": name}

    def _allowed(self, entry: Entry, args: Given) -> dict[str, tuple[str, ...]]:
        """Take out of a backbone's arguments which tensors its weights may lack or have besides."""
        found = {}
        for key in ("allow_missing", "allow_unused"):
            value = args.pop(key, [])
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                where = (*entry.path, entry.name, key)
                self._mistakes.at(where, "expected a list of names, such as [norm.*]")
                value = []
            found[key] = tuple(value)
        return found

    def _weights(
        self, entry: Entry, weights: Any, model: str, allowed: dict[str, tuple[str, ...]]
    ) -> Weights | None:
        if weights is None:
            for key, value in allowed.items():
                if value:
                    self._mistakes.at((*entry.path, entry.name, key), "is for weights: FILE alone")
            return None
        path = Path(os.path.expanduser(str(weights)))
        named = (
            "/" not in str(weights)
            and not path.is_file()
            and not str(weights).endswith(WEIGHTS_FILES)
        )
        if named:
            if self._data_root is None:
                return Weights(fingerprint=f"named:{path}", **allowed)
            places = [self._data_root / "weights" / f"{path}{suffix}" for suffix in WEIGHTS_FILES]
            path = next((place for place in places if place.is_file()), places[0])
        if not path.is_file():
            fetch = weights if named else model
            fix = f"Download it once with: vtjobs data prepare weights:{fetch}"
            if not named:
                fix += f", and set weights: {fetch}"
            if is_own(entry.name):
                fix = "Give the path of a weights file"
            self._mistakes.at((*entry.path, entry.name, "weights"), f"{path}: no such file", fix)
            return None
        sha = f"sha256:{file_sha256(path)}"
        self._paths[sha] = str(path.resolve())
        return Weights(fingerprint=sha, **allowed)

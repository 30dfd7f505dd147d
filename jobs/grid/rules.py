"""What the rules of a grid may name.

Conditions of exclude and overrides, includes, dotted paths.
"""

from typing import Any

from ..errors import suggest
from ..run.spec import VARIANT
from ..strict_yaml import Path_
from ..values import Value
from . import variants
from .entries import Entry, Given, entries
from .resolve import Resolver
from .schema import Grid
from .seeds import MAX_SEED

COORDINATES = ("backbone", "dataset", "head", "seed", "stage", "recipe")


def as_list(value: Any) -> list[Any]:
    """Read one value as a list of one, and nothing as none."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SEED


class Rules(Value, frozen=True):
    """The rules of a grid, to be checked against its axes; mistakes go to the resolver."""

    grid: Grid
    resolver: Resolver
    backbones: list[Entry]
    datasets: list[Entry]
    heads: list[Entry]

    def check(self) -> None:
        """Find every rule that names what this grid has not."""
        rules: list[tuple[Path_, Given]] = []
        rules += [(("exclude", index), rule) for index, rule in enumerate(self.grid.exclude)]
        rules += [
            (("overrides", index, "when"), rule.when)
            for index, rule in enumerate(self.grid.overrides)
        ]
        for path, rule in rules:
            for key, value in rule.items():
                self._condition((*path, key), key, value)
        for index, rule in enumerate(self.grid.include):
            self._include(("include", index), rule)
        for axis in self.grid.axes:
            self._dotted(axis, ("axes", axis))
        for name in self.grid.variants:
            self._variant(name)
        for index, override in enumerate(self.grid.overrides):
            for setting in override.set:
                self._dotted(setting, ("overrides", index, "set", setting))

    def _variant(self, name: str) -> None:
        if wrong := variants.mistake(self.grid, name):
            self.resolver.problem(("variants", name, variants.EXTENDS), wrong)
        for setting in self.grid.variants[name]:
            if setting != variants.EXTENDS:
                self._dotted(setting, ("variants", name, setting))

    def _include(self, path: Path_, rule: Given) -> None:
        allowed = ("backbone", "dataset", "head", "seed")
        for key, value in rule.items():
            if key not in allowed:
                self.resolver.problem((*path, key), f"unknown key {key!r}", suggest(key, allowed))
            for part in as_list(value):
                if key == "seed" and not _is_seed(part):
                    self.resolver.problem(
                        (*path, key), f"expected whole numbers 0…{MAX_SEED}, got {part!r}"
                    )
                elif key in allowed[:3] and not isinstance(part, str):
                    self.resolver.problem(
                        (*path, key), "expected a name of this grid or of the catalogue"
                    )
        for key in allowed[:2] if self.grid.stages else allowed[:3]:
            if not as_list(rule.get(key)):
                self.resolver.problem(path, f"{key} is required")

    def _condition(self, path: Path_, key: str, value: Any) -> None:
        known = [*COORDINATES, *([VARIANT] if self.grid.variants else []), *self.grid.axes]
        if key not in known:
            self.resolver.problem(path, f"unknown key {key!r}", suggest(key, known))
            return
        if not as_list(value):
            self.resolver.problem(path, "at least one value is needed")
        choices = self._choices(key)
        for part in as_list(value):
            if not isinstance(part, str | int | float) or (
                key == "seed" and isinstance(part, bool)
            ):
                self.resolver.problem(path, f"expected a {key}, or a list of them")
            elif choices is not None and part not in choices and str(part) not in choices:
                fix = suggest(str(part), map(str, choices))
                self.resolver.problem(path, f"{part!r} is not among this grid's {key}s", fix)

    def _choices(self, key: str) -> set[Any] | None:
        included = {
            seed
            for rule in self.grid.include
            for seed in as_list(rule.get("seed"))
            if _is_seed(seed)
        }
        match key:
            case "backbone" | "dataset" | "head":
                return self._names(key)
            case "variant":
                return set(self.grid.variants)
            case "stage":
                return {stage.name for stage in self.grid.stages} or None
            case "seed":
                return set(self.grid.replicates) | included
        return set(map(str, self.grid.axes[key])) if key in self.grid.axes else None

    def _names(self, key: str) -> set[str]:
        found = list(
            {"backbone": self.backbones, "dataset": self.datasets, "head": self.heads}[key]
        )
        for index, stage in enumerate(self.grid.stages):
            items: list[Any] = getattr(stage, f"{key}s") or []
            found += entries(items, ("stages", index, f"{key}s"))
        names = {name for entry in found for name in (entry.name, entry.label, entry.setting)}
        return names | {str(part) for rule in self.grid.include for part in as_list(rule.get(key))}

    def _dotted(self, path: str, where: Path_) -> None:
        room, _, rest = path.partition(".")
        if path == "recipe" or (room == "train" and rest):
            return
        if room not in ("head", "backbone", "dataset") or rest.count(".") < 1:
            fix = (
                "Write train.FIELD, head.NAME.PARAMETER, backbone.NAME.ARGUMENT,"
                " dataset.NAME.SETTING or recipe"
            )
            self.resolver.problem(where, f"cannot vary {path!r}", fix)
            return
        if path == "head.distill.teacher":
            self.resolver.problem(
                where, f"{path} cannot be varied", "List distill once for each teacher"
            )
            return
        names = self._names(room)
        if rest.split(".")[0] not in names:
            self.resolver.problem(
                where, f"{path}: no such {room} in this grid", suggest(rest.split(".")[0], names)
            )


def coordinate(value: Any) -> str | int | float:
    """Return what a condition compares an axis's value with."""
    return value if isinstance(value, str | int | float) else str(value)


def matches(rule: Given, coordinates: dict[str, set[Any]]) -> bool:
    """Whether every condition but the seed's holds."""
    for key, value in rule.items():
        if key == "seed":
            continue
        found = coordinates.get(key)
        if found is None or not any(part in found or str(part) in found for part in as_list(value)):
            return False
    return True

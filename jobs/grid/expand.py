"""Grid -> cells -> runs: ordered, without doubles, the same every time."""

import itertools
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from ..errors import BadInput
from ..run.spec import BASELINE, VARIANT, CellSpec, canonical, digest, seeds_text
from ..strict_yaml import Document, Path_
from . import variants
from .axes import combinations
from .entries import Entry, Given, entries, pick
from .expansion import Cell, Expansion, Made, Run
from .points import Point, PointSettings, with_axes_of_both
from .resolve import Resolver
from .rules import Rules, as_list, coordinate, matches
from .schema import Grid, Override
from .size import check_size, too_many
from .teachers import teacher_stage, with_teachers


def expand(
    grid: Grid, document: Document, *, resolver: Resolver | None = None, max_runs: int = 100_000
) -> Expansion:
    """Expand a grid.

    Args:
        grid: what was read from `document`.
        document: where everything stands, for messages.
        resolver: remembers names that were looked up already, and the mistakes in them.
        max_runs: the largest grid to take.

    Raises:
        BadInput: with every mistake found in names, settings, rules and size.
    """
    return _Expander(grid, document, resolver or Resolver(document), max_runs).expansion()


@cache
def _image_size(recipe: str) -> int:
    """Return the side of a recipe's images, pixels; the recipe is canonical JSON."""
    return int(json.loads(recipe)["image_size"])


class _Expander:
    def __init__(self, grid: Grid, document: Document, resolver: Resolver, max_runs: int) -> None:
        self.grid = grid
        self.document = document
        self.max_runs = max_runs
        self.resolver = resolver
        self.cells: list[Cell] = []
        self.by_id: dict[str, int] = {}
        self.runs: list[Run] = []
        self.seen: set[str] = set()
        apart = {index: canonical(streams) for index, streams in grid.streams.items()}
        self.seeds_text = apart.__getitem__ if apart else seeds_text
        # cell -> seed -> run_id, for the stages that start from it.
        self.of_cell: dict[int, dict[int, str]] = {}
        self.excluded: dict[str, int] = {}
        self.backbones = entries(grid.backbones, ("backbones",))
        self.datasets = entries(grid.datasets, ("datasets",))
        self.heads = entries(grid.heads or [], ("heads",))

    def expansion(self) -> Expansion:
        check_size(self.grid, self.document, self._axis_entries(), self.max_runs)
        known = len(self.resolver.problems)
        Rules(self.grid, self.resolver, self.backbones, self.datasets, self.heads).check()
        if len(self.resolver.problems) > known:
            # A rule that cannot be read cannot be followed; mistakes in names do not stop the
            # search for more.
            self._raise()
        if self.grid.stages:
            made: dict[str, list[Made]] = {}
            for index, stage in enumerate(self.grid.stages):
                made[stage.name] = self._stage(index, made)
        else:
            points = with_teachers(
                self._product(self.heads, self.datasets, self.backbones),
                {},
                self.cells,
                self.resolver,
            )
            self._points(points, "", {}, self.grid.recipe or "", ("recipe",))
        self._raise()
        if not self.runs:
            raise BadInput(self.document.problem((), "no run is left after the exclusions"))
        return Expansion(
            cells=self.cells,
            runs=self.runs,
            excluded=dict(sorted(self.excluded.items())),
            paths=self.resolver.paths,
            sources=self.resolver.mistakes.sources.read,
            streams=self.grid.streams,
        )

    def _raise(self) -> None:
        if self.resolver.problems:
            raise BadInput(self.resolver.problems)

    def _axis_entries(self) -> dict[str, list[Entry]]:
        first = next((stage.heads for stage in self.grid.stages if stage.heads), None)
        heads = self.heads or entries(first or [], ("stages",))
        return {"backbone": self.backbones, "dataset": self.datasets, "head": heads}

    # The product ----------------------------------------------------------------------------------

    def _product(
        self, heads: list[Entry], datasets: list[Entry], backbones: list[Entry]
    ) -> Iterator[Point]:
        for dataset, backbone, head in itertools.product(datasets, backbones, heads):
            for axes in self._axes(backbone, dataset, head, {}):
                yield Point(backbone, dataset, head, axes, self.grid.replicates)
        for index, rule in enumerate(self.grid.include if backbones is self.backbones else ()):
            yield from self._included(rule, index, heads)

    def _included(self, rule: Given, index: int, heads: list[Entry]) -> Iterator[Point]:
        path: Path_ = ("include", index)
        names = [as_list(rule.get(key)) for key in ("dataset", "backbone", "head")]
        seeds = as_list(rule["seed"]) if "seed" in rule else self.grid.replicates
        names[2] = names[2] or [entry.label for entry in heads]
        if self.grid.stages:
            # Each stage has heads of its own.
            names[2] = [
                name
                for name in names[2]
                if any(name in (entry.label, entry.name) for entry in heads)
            ]
        for dataset, backbone, head in itertools.product(*names):
            chosen = (
                pick(str(backbone), self.backbones, (*path, "backbone")),
                pick(str(dataset), self.datasets, (*path, "dataset")),
                pick(str(head), heads, (*path, "head")),
            )
            for axes in self._axes(*chosen, {}):
                yield Point(*chosen, axes, seeds)

    def _axes(self, backbone: Entry, dataset: Entry, head: Entry, given: Given) -> Iterator[Given]:
        chosen = {"backbone": backbone.setting, "dataset": dataset.setting, "head": head.setting}
        return combinations(self.grid, chosen, given)

    def _stage(self, index: int, made: dict[str, list[Made]]) -> list[Made]:
        stage = self.grid.stages[index]
        path: Path_ = ("stages", index)
        heads = entries(stage.heads, (*path, "heads")) if stage.heads else self.heads
        own = entries(stage.datasets, (*path, "datasets")) if stage.datasets else None
        recipe, recipe_path = (
            (stage.recipe, (*path, "recipe")) if stage.recipe else (self.grid.recipe, ("recipe",))
        )
        train = {key: (value, (*path, "train", key)) for key, value in stage.train.items()}
        if stage.init_from is None:
            backbones = (
                entries(stage.backbones, (*path, "backbones"))
                if stage.backbones
                else self.backbones
            )
            points = with_teachers(
                self._product(heads, own or self.datasets, backbones),
                made,
                self.cells,
                self.resolver,
            )
        else:
            points = self._children(made[stage.init_from], heads, own)
        return self._points(points, stage.name, train, recipe or "", recipe_path)

    def _children(
        self, parents: list[Made], heads: list[Entry], own: list[Entry] | None
    ) -> Iterator[Point]:
        for head in heads:
            if teacher_stage(head) is not None:
                message = "a stage with init_from cannot take its teacher from another stage"
                fix = "Give the teacher as {MODEL: {weights: FILE}}"
                self.resolver.problem((*head.path, head.name, "teacher"), message, fix)
                return
        for made in parents:
            backbone, dataset = self.cells[made.cell].entries
            for target, head in itertools.product(own or [dataset], heads):
                for axes in self._axes(backbone, target, head, made.axes):
                    yield Point(backbone, target, head, axes, list(made.seeds), made.cell)

    # From points to cells and runs ----------------------------------------------------------------

    def _points(
        self,
        points: Iterator[Point],
        stage: str,
        train: dict[str, tuple[Any, Path_]],
        recipe: str,
        path: Path_,
    ) -> list[Made]:
        """Make the cells and runs of some points.

        Return the cells, those that were there before included, once for each of their points:
        later stages may differ where this one does not.
        """
        found: dict[tuple[Any, ...], Made] = {}
        for point in points:
            coordinates: dict[str, set[Any]] = {
                "backbone": {point.backbone.name, point.backbone.label},
                "dataset": {point.dataset.name, point.dataset.label},
                "head": {point.head.name, point.head.label},
                "stage": {stage},
                "recipe": {recipe},
                **{key: {coordinate(value)} for key, value in point.axes.items()},
            }
            for seeds, sets in self._by_override(point, coordinates):
                kept = self._not_excluded(seeds, coordinates)
                if not kept:
                    continue
                settings = self._settings(point, train, recipe, path, sets)
                cell = self._cell(point, settings, stage)
                if cell is not None:
                    self._add_runs(cell, kept)
                    axes = [(key, coordinate(value)) for key, value in point.axes.items()]
                    made = found.setdefault(
                        (cell, *axes), Made(cell=cell, axes=point.axes, seeds={})
                    )
                    runs = self.of_cell[cell]
                    made.seeds.update((seed, runs[seed]) for seed in kept if seed in runs)
        return list(found.values())

    def _by_override(
        self, point: Point, coordinates: dict[str, set[Any]]
    ) -> Iterator[tuple[list[int], list[tuple[int, Given]]]]:
        """Split the point's seeds by the overrides that hold for them; mostly there is one part."""
        always: list[tuple[int, Override]] = []
        seeded: list[tuple[int, Override]] = []
        for index, override in enumerate(self.grid.overrides):
            if matches(override.when, coordinates):
                (seeded if "seed" in override.when else always).append((index, override))
        if not seeded:
            yield point.seeds, [(index, override.set) for index, override in always]
            return
        parts: dict[tuple[int, ...], list[int]] = {}
        for seed in point.seeds:
            key = tuple(
                index for index, override in seeded if seed in as_list(override.when["seed"])
            )
            parts.setdefault(key, []).append(seed)
        for key, seeds in parts.items():
            chosen = sorted({index for index, _ in always} | set(key))
            yield seeds, [(index, self.grid.overrides[index].set) for index in chosen]

    def _not_excluded(self, seeds: list[int], coordinates: dict[str, set[Any]]) -> list[int]:
        kept = seeds
        for rule in self.grid.exclude:
            if not matches(rule, coordinates):
                continue
            left = [seed for seed in kept if "seed" in rule and seed not in as_list(rule["seed"])]
            if len(left) < len(kept):
                text = ", ".join(f"{key}: {value}" for key, value in rule.items())
                self.excluded[f"{{{text}}}"] = (
                    self.excluded.get(f"{{{text}}}", 0) + len(kept) - len(left)
                )
            kept = left
        return kept

    def _settings(
        self,
        point: Point,
        train: dict[str, tuple[Any, Path_]],
        recipe: str,
        path: Path_,
        sets: list[tuple[int, Given]],
    ) -> PointSettings:
        settings = PointSettings(recipe, path)
        for key, value in self.grid.train.items():
            settings.train[key], settings.sources[key] = value, ("train", key)
        for key, (value, where) in train.items():
            settings.train[key], settings.sources[key] = value, where
        changes: list[tuple[str, Any, Path_]] = []
        for key, value in point.axes.items():
            if key == VARIANT:
                changes += variants.changes_of(self.grid, value)
            else:
                changes.append((key, value, ("axes", key)))
        for index, values in sets:
            changes += [
                (key, value, ("overrides", index, "set", key)) for key, value in values.items()
            ]
        mine = {
            "backbone": point.backbone.setting,
            "dataset": point.dataset.setting,
            "head": point.head.setting,
        }
        for dotted, value, where in changes:
            room, _, rest = dotted.partition(".")
            if dotted == "recipe":
                settings.recipe, settings.recipe_path = str(value), where
            elif room == "train":
                settings.train[rest], settings.sources[rest] = value, where
            elif rest.split(".", 1)[0] == mine.get(room):
                getattr(settings, room)[rest.split(".", 1)[1]] = value
        return settings

    def _cell(self, point: Point, settings: PointSettings, stage: str) -> int | None:
        spec = self._spec(point, settings)
        parent = self.cells[point.parent] if point.parent is not None else None
        start = None if parent is None else parent.spec
        if spec is None or not (
            self.resolver.fit(spec, point.head)
            and self.resolver.can_start(spec, start, point.dataset)
        ):
            return None
        # A teacher is what the head adds: what is compared with is trained without.
        before = parent if teacher_stage(point.head) is None else None
        cell_id = spec.cell_id(parent.cell_id if parent else None)
        if cell_id in self.by_id:
            index = self.by_id[cell_id]
            self.cells[index] = with_axes_of_both(self.cells[index], point.axes)
            return index
        chain = f"{before.labels['head']}-then-{point.head.label}" if before else point.head.label
        labels = {
            "backbone": point.backbone.label,
            "dataset": point.dataset.label,
            "head": chain,
            "recipe": settings.recipe,
        }
        baseline = point.head.name == BASELINE and (parent is None or parent.is_baseline)
        self.by_id[cell_id] = len(self.cells)
        self.cells.append(
            Cell(
                spec=spec,
                cell_id=cell_id,
                match_id=spec.match_id(before.match_id if before else None),
                stage=stage,
                labels=labels,
                axes=point.axes,
                is_baseline=baseline,
                parent=point.parent,
                entries=(point.backbone, point.dataset),
            )
        )
        return self.by_id[cell_id]

    def _spec(self, point: Point, settings: PointSettings) -> CellSpec | None:
        """Return what a point's runs are; None where one of its names or settings is wrong."""
        resolver, name = self.resolver, settings.recipe
        recipe = resolver.recipe(
            name, settings.train, settings.sources, settings.recipe_path, point.dataset.name
        )
        size = _image_size(recipe) if recipe is not None else 0
        # What a recipe brings for a dataset or a head it brings to those that extend it.
        base = resolver.base_of(name)
        parts = (
            resolver.backbone(point.backbone, settings.backbone),
            resolver.dataset(point.dataset, settings.dataset, base, size),
            resolver.head(point.head, point.backbone, settings.head, base),
            recipe,
        )
        if None in parts:
            return None
        backbone, dataset, head, recipe = (str(part) for part in parts)
        return CellSpec(backbone=backbone, dataset=dataset, head=head, recipe=recipe)

    def _add_runs(self, index: int, seeds: list[int]) -> None:
        cell = self.cells[index]
        parents = self.of_cell.get(cell.parent, {}) if cell.parent is not None else {}
        mine = self.of_cell.setdefault(index, {})
        for seed in seeds:
            if cell.parent is not None and seed not in parents:
                why = "{the teacher's run}"
                self.excluded[why] = self.excluded.get(why, 0) + 1
                continue
            parent = parents.get(seed)
            run_id = digest(cell.spec.text(seeds=self.seeds_text(seed), init_from=parent))
            if run_id in self.seen:
                continue
            self.seen.add(run_id)
            mine[seed] = run_id
            self.runs.append(Run(run_id, index, seed, parent))
        if len(self.runs) > self.max_runs:
            raise too_many(self.document, "more runs than allowed", self.max_runs)

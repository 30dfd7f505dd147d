"""The grid file: its schema, and every mistake in it with file, line, key and fix."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ..config.resources import Duration, Resources
from ..config.site import Ray, Slurm
from ..errors import BadInput, Problem, suggest
from ..names import name_problem
from ..run.spec import BASELINE, EACH
from ..strict_yaml import Document, Path_, parse, read
from ..units import format_duration
from ..validation import validate
from . import catalogue
from .design import Design
from .heads import HEADS
from .recipe import Recipe
from .seeds import Seeds, Variance


def _entry_list(*names: str) -> WithJsonSchema:
    item = {"anyOf": [{"type": "string", "examples": list(names)}, {"type": "object"}]}
    return WithJsonSchema({"type": "array", "items": item, "minItems": 1})


Backbones = Annotated[list[Any], _entry_list("swin_t", "resnet50")]
Datasets = Annotated[list[Any], _entry_list("digits", "cifar10")]
Heads = Annotated[list[Any], _entry_list(*HEADS)]
Train = Annotated[
    dict[str, Any], WithJsonSchema(Recipe.model_json_schema() | {"required": [], "title": "Train"})
]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Override(Strict):
    when: dict[str, Any] = Field(
        description="conditions on backbone, dataset, head, seed, stage, …; all must hold",
    )
    set: dict[str, Any] = Field(
        description="settings to change, by dotted path, e.g. head.drloc.weight or train.lr",
        min_length=1,
    )


class Stage(Strict):
    """One training stage; settings that it omits are the grid's."""

    name: str
    heads: Heads | None = None
    recipe: str | None = None
    train: Train = Field(default_factory=dict)
    datasets: Datasets | None = None
    backbones: Backbones | None = Field(
        None,
        description="backbones of a stage without init_from, such as a teacher's",
    )
    init_from: str | None = Field(
        None,
        description="earlier stage whose final weights this stage starts from",
    )


class Data(Strict):
    """Validation split and additional evaluation sets of every dataset."""

    val: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="fraction of the training images held out, stratified; scored as set val",
    )
    sets: list[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")]] = Field(
        default_factory=list,
        description="additional sets on which each run is scored, such as v2",
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = ["test", *(["val"] if self.val else []), *self.sets]
        if len(set(names)) < len(names):
            raise ValueError(
                f"sets: {', '.join(names)} lists a set twice (test and a held-out val are always"
                " scored)"
            )
        return self


class Compare(Strict):
    """Comparison of the heads with the baseline, declared before the runs."""

    test: Literal["welch", "paired"] = "welch"
    alpha: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    margin: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="equivalence margin ±, in the metric's unit; null: no equivalence test",
    )
    min_effect: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="smallest difference to detect with 80 % power, in the metric's unit",
    )
    baseline: str = Field(
        BASELINE,
        description="head that the others are compared with; each: every pair of heads",
    )
    metric: str = "top1"
    set: str = "test"
    looks: list[Annotated[int, Field(ge=3)]] = Field(
        default_factory=list,
        description=(
            "interim analyses: numbers of seeds per side at which to test; "
            "α is divided among them in the ratio 1 : 2 : 3 …"
        ),
    )

    anytime: bool = Field(
        False,
        description="anytime-valid test by e-values, after any number of seeds; replaces looks",
    )
    select: Literal["last", "best_val", "ema_last"] = Field(
        "last",
        description="epoch to score: last, best_val (best on val) or ema_last (EMA weights)",
    )
    family: Literal["table", "dataset", "screen"] = Field(
        "table",
        description="comparisons that share α: table or dataset (Holm), or screen (FDR control)",
    )
    on_diverged: Literal["suppress", "chance"] = Field(
        "suppress",
        description="diverged runs: suppress (no test) or chance (counted at chance level)",
    )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if self.anytime and self.looks:
            raise ValueError(
                "anytime: valid at every number of seeds, so it takes no looks. Remove looks"
            )
        if self.anytime and self.margin is not None:
            raise ValueError(
                "anytime: ties are tested only once, so margin cannot be set. Remove margin"
            )
        if self.select == "best_val" and self.set == "val":
            raise ValueError("select: best_val chooses the epoch on val. Compare on another set")
        if self.family == "screen" and (self.looks or self.anytime):
            raise ValueError("family: screen cannot be combined with looks or anytime. Remove them")
        return self

    @field_validator("looks")
    @classmethod
    def _ascending(cls, looks: list[int]) -> list[int]:
        if looks != sorted(set(looks)):
            raise ValueError(f"looks: expected numbers of seeds in ascending order, got {looks}")
        return looks


def whole_compare(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored declaration with what has come to it since.

    An older version's is no other one for that.
    """
    return Compare.model_validate(stored).model_dump(mode="json")


class LocalBackend(Strict):
    slots: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="maximum number of concurrent runs; default: as many as GPUs or cores allow",
    )


class Backend(Strict):
    """Settings of each backend, by its name."""

    local: LocalBackend | None = None
    slurm: Slurm | None = None
    ray: Ray | None = None


def _backend_form(value: object) -> str:
    return "<name>" if isinstance(value, str) else "<settings>"


class Grid(Strict):
    """A grid file: axes and settings that expand into runs."""

    name: str
    description: str = ""
    backbones: Backbones
    datasets: Datasets
    heads: Heads | None = None
    seeds: Seeds = Field(
        default_factory=list,
        description="count n (seeds 0…n-1), list, or {range: [first, end]} (end excluded)",
    )
    variance: Variance | None = Field(
        None,
        description="streams of randomness to vary separately, in place of seeds",
    )
    recipe: str | None = None
    train: Train = Field(default_factory=dict, description="changes to the recipe")
    data: Data = Data()
    axes: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="additional axes by dotted path, such as {head.drloc.pairs: [32, 64]}",
    )
    variants: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.+-]{0,63}$")], dict[str, Any]
    ] = Field(
        default_factory=dict,
        description="axis of named sets of changes, such as {no-mixup: {train.mixup: 0.0}}",
    )
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    include: list[dict[str, Any]] = Field(default_factory=list)
    overrides: list[Override] = Field(default_factory=list)
    stages: list[Stage] = Field(default_factory=list)
    compare: Compare | None = Field(
        None,
        description="how the heads will be compared; changes after runs have started need --amend",
    )
    resources: Resources = Resources()
    retries: int = Field(
        3,
        ge=0,
        le=100,
        description=(
            "number of failed attempts after which a run is given up; "
            "preemption, walltime and node failure do not count"
        ),
    )
    checkpoint_every: Duration = 600
    evaluate_every: int = Field(
        1,
        ge=1,
        description="epochs between evaluations; the last epoch is always evaluated",
    )
    max_running: int | None = Field(None, ge=1)
    halve_micro_batch: bool = Field(
        False,
        description="retry once with half the micro-batch after running out of memory",
    )
    backend: (
        Annotated[
            Annotated[Literal["local", "slurm", "ray"], Tag("<name>")]
            | Annotated[Backend, Tag("<settings>")],
            Discriminator(_backend_form),
        ]
        | None
    ) = Field(
        None,
        description="name of the backend, or settings by backend name; default: as configured",
    )

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if problem := name_problem(value):
            raise ValueError(problem)
        return value

    @cached_property
    def streams(self) -> dict[int, dict[str, int]]:
        """The value of every stream by run of a cell, counted from 0.

        Empty where one seed moves them all.
        """
        return dict(enumerate(self.variance.rows())) if self.variance is not None else {}

    @property
    def replicates(self) -> list[int]:
        """What the runs of a cell are told apart by.

        Seeds, or the places in the design of `variance`.
        """
        return list(self.streams) or self.seeds

    def backend_name(self, default: str) -> str:
        """Return the backend that the grid names.

        By its name, or by being the only one with settings.
        """
        if isinstance(self.backend, str):
            return self.backend
        named = [
            name for name in Backend.model_fields if getattr(self.backend, name, None) is not None
        ]
        return named[0] if len(named) == 1 else default

    def site(self, name: str) -> dict[str, Any]:
        """Return the settings that the grid gives a backend, those that it sets alone."""
        found = None if isinstance(self.backend, str | None) else getattr(self.backend, name, None)
        return found.model_dump(mode="json", exclude_unset=True) if found is not None else {}


def grid_document(source: str, *, changes: dict[str, Any] | None = None) -> Document:
    """Read the text of a grid: a file's path or a built-in grid's name.

    Args:
        source: what the user typed.
        changes: settings from the command line (`--set`), by dotted path.

    Raises:
        BadInput: it is not the YAML of a mapping.
    """
    document = _source(source)
    if not isinstance(document.data, dict):
        keys = "keys backbones, datasets, heads, seeds, recipe"
        raise BadInput(Problem(file=document.file, message=f"expected a mapping with {keys}"))
    for path, value in (changes or {}).items():
        _change(document, path, value)
    return document


def check_grid(document: Document) -> tuple[Grid | None, list[Problem]]:
    """Check a document against the schema; return the grid, or None, and every mistake found."""
    grid, problems = validate(Grid, document.data, document)
    problems += _list_problems(document)
    if grid is not None:
        problems += _stage_problems(grid, document)
        problems += _cadence_problems(grid, document)
        problems += _seed_problems(grid, document)
        problems += _compare_problems(grid, document)
    return grid, problems


def _source(source: str) -> Document:
    path = Path(source)
    if path.suffix in (".yaml", ".yml") or "/" in source or path.exists():
        return read(path)
    if source not in catalogue.grid_names():
        raise BadInput(
            f"{source}: no such file, and no built-in grid."
            f" {suggest(source, catalogue.grid_names())}"
        )
    return parse(catalogue.grid_source(source), file=source)


def _change(document: Document, path: str, value: Any) -> None:
    place = document.data
    *parents, last = path.split(".")
    for part in parents:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise BadInput(f"--set {path}: {part} is not a mapping")
    place[last] = value


def _list_problems(document: Document) -> list[Problem]:
    """Check the entry lists, which pydantic sees as `Any`."""
    problems: list[Problem] = []
    stages = document.data.get("stages") or []
    places: list[tuple[str | int, ...]] = [()]
    if isinstance(stages, list):
        places += [("stages", index) for index in range(len(stages))]
    for place in places:
        owner = document.data if not place else stages[int(place[1])]
        for key in ("backbones", "datasets", "heads"):
            if isinstance(owner, dict) and isinstance(owner.get(key), list):
                problems += _entries_problems(owner[key], document, (*place, key))
    if isinstance(axes := document.data.get("axes"), dict):
        for name, values in axes.items():
            if isinstance(values, list):
                problems += _entries_problems(values, document, ("axes", name), of_names=False)
    return problems


def _entries_problems(
    entries: list[Any], document: Document, path: tuple[str | int, ...], *, of_names: bool = True
) -> list[Problem]:
    if not entries:
        return [document.problem(path, "at least one is needed")]
    problems = []
    seen: list[Any] = []
    for index, entry in enumerate(entries):
        if entry in seen:
            shown = next(iter(entry), entry) if isinstance(entry, dict) else entry
            problems.append(
                document.problem(
                    (*path, index), f"{shown} listed twice (would create duplicate runs)"
                )
            )
        seen.append(entry)
        if (
            of_names
            and not isinstance(entry, str)
            and not (isinstance(entry, dict) and len(entry) == 1)
        ):
            message = "expected a name, or one name with its settings: {name: {key: value}}"
            problems.append(document.problem((*path, index), message))
    return problems


def _stage_problems(grid: Grid, document: Document) -> list[Problem]:
    problems: list[Problem] = []
    names: list[str] = []
    for index, stage in enumerate(grid.stages):
        where = ("stages", index)
        if problem := name_problem(stage.name):
            problems.append(document.problem((*where, "name"), problem))
        if stage.name in names:
            problems.append(
                document.problem((*where, "name"), f"duplicate stage name {stage.name!r}")
            )
        if stage.init_from is not None and stage.init_from not in names:
            message = f"no earlier stage {stage.init_from!r}"
            problems.append(
                document.problem((*where, "init_from"), message, suggest(stage.init_from, names))
            )
        if stage.init_from is not None and stage.backbones is not None:
            message = "a stage with init_from keeps the backbones of the stage that it starts from"
            problems.append(document.problem((*where, "backbones"), message))
        names.append(stage.name)
    parts: list[tuple[Path_, Stage | None]] = [
        (("stages", index), stage) for index, stage in enumerate(grid.stages)
    ]
    for place, part in parts or [((), None)]:
        for key in ("heads", "recipe"):
            if not (getattr(part, key, None) or getattr(grid, key)):
                problems.append(document.problem((*place, key), "is required"))
    return problems


def _seed_problems(grid: Grid, document: Document) -> list[Problem]:
    apart = grid.variance is not None and grid.variance.design is not Design.TOGETHER
    if apart and grid.seeds:
        message = "the design of `variance` already sets the seed of every stream"
        return [document.problem(("seeds",), message, "Remove seeds or variance")]
    if apart:
        rules: list[tuple[Path_, dict[str, Any]]] = [
            (("include", i), rule) for i, rule in enumerate(grid.include)
        ]
        rules += [(("exclude", i), rule) for i, rule in enumerate(grid.exclude)]
        rules += [(("overrides", i, "when"), rule.when) for i, rule in enumerate(grid.overrides)]
        message = "rules cannot name seeds here: the design of `variance` sets them"
        seeded = [place for place, rule in rules if "seed" in rule]
        return [document.problem((*place, "seed"), message, "Remove it") for place in seeded]
    if not apart and not grid.seeds:
        return [document.problem(("seeds",), "is required")]
    return []


def _compare_problems(grid: Grid, document: Document) -> list[Problem]:
    """Check what the comparison needs; heads of a chain of stages have their names only later."""
    if grid.compare is None:
        return []
    if grid.compare.select == "best_val" and grid.data.val is None:
        message = "best_val needs held-out validation images, but data.val is not set"
        return [document.problem(("compare", "select"), message, "Set data: {val: 0.1}")]
    if grid.compare.baseline in (BASELINE, EACH) or grid.stages:
        return []
    names = [next(iter(head)) if isinstance(head, dict) else str(head) for head in grid.heads or []]
    named = grid.compare.baseline
    if any(named == name or named.startswith(f"{name}(") for name in names):
        return []
    return [
        document.problem(
            ("compare", "baseline"), f"no head {named!r} in this grid", suggest(named, names)
        )
    ]


def _cadence_problems(grid: Grid, document: Document) -> list[Problem]:
    walltime = grid.resources.walltime
    # The default cadence may be longer: a run also saves when its time is up.
    if (
        walltime is None
        or "checkpoint_every" not in grid.model_fields_set
        or grid.checkpoint_every < walltime
    ):
        return []
    every, limit = format_duration(grid.checkpoint_every), format_duration(walltime)
    message = f"{every} is not shorter than resources.walltime ({limit})"
    return [
        document.problem(("checkpoint_every",), message, "Save more often, or ask for more time")
    ]

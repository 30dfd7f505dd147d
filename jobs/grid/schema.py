"""The schema of the grid file."""

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from ..config.backends import names
from ..config.resources import Duration, Resources
from ..config.site import SiteSettings, settings_of
from ..names import name_problem
from ..run.comparing import (
    Correction,
    Family,
    OnDiverged,
    OverDatasets,
    Select,
    Test,
    contradiction,
)
from ..run.spec import BASELINE
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


# One that lies in a file is put in place of its path before the grid is checked.
Recipes = Annotated[
    dict[str, dict[str, Any]],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "object",
                        "properties": {"extends": {"type": "string"}},
                        "required": ["extends"],
                    },
                ]
            },
        }
    ),
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

    name: str = Field(description="name of the stage")
    heads: Heads | None = Field(None, description="heads of this stage")
    recipe: str | None = Field(None, description="recipe of this stage")
    train: Train = Field(default_factory=dict, description="changes to the recipe in this stage")
    datasets: Datasets | None = Field(None, description="datasets of this stage")
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
    metrics: list[Any] = Field(
        default_factory=list,
        description=(
            'your own metrics, "file.py:function" with or without arguments; '
            "scored on every set beside top1, top5 and loss"
        ),
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


_E = TypeVar("_E", bound=StrEnum)
# A file has a word where the program has a value: strict checking would refuse it.
Word = Annotated[_E, Field(strict=False)]


class Compare(Strict):
    """Comparison of the heads with the baseline, declared before the runs."""

    test: Word[Test] = Field(Test.WELCH, description="test of two cells: welch or paired (by seed)")
    alpha: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.05,
        description="family-wise significance level",
    )
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
    metric: str = Field("top1", description="metric that is compared")
    set: str = Field("test", description="evaluation set")
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
    select: Word[Select] = Field(
        Select.LAST,
        description="epoch to score: last, best_val (best on val) or ema_last (EMA weights)",
    )
    family: Word[Family] = Field(
        Family.TABLE,
        description="comparisons that share α: table or dataset (Holm), or screen (FDR control)",
    )
    on_diverged: Word[OnDiverged] = Field(
        OnDiverged.SUPPRESS,
        description="diverged runs: suppress (no test) or chance (counted at chance level)",
    )

    correction: Word[Correction] = Field(
        Correction.HOLM,
        description="for the number of comparisons: holm, or dunnett (many heads, one baseline)",
    )
    over_datasets: Word[OverDatasets] = Field(
        OverDatasets.EACH,
        description=(
            "each: a comparison per dataset; fixed: one over these datasets; "
            "random: one over datasets like these"
        ),
    )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if message := contradiction(self):
            raise ValueError(message)
        if self.select is Select.BEST_VAL and self.set == "val":
            raise ValueError("select: best_val chooses the epoch on val. Compare on another set")
        return self

    @field_validator("looks")
    @classmethod
    def _ascending(cls, looks: list[int]) -> list[int]:
        if looks != sorted(set(looks)):
            raise ValueError(f"looks: expected numbers of seeds in ascending order, got {looks}")
        return looks


_BACKENDS: dict[str, Any] = {
    name: (settings_of(name) | None, Field(None, description=f"settings of the backend {name}"))
    for name in names()
}
Backend = create_model(
    "Backend", __base__=Strict, __doc__="Settings of each backend, by its name.", **_BACKENDS
)


def _backend_form(value: object) -> str:
    return "<name>" if isinstance(value, str) else "<settings>"


class Grid(Strict):
    """A grid file: axes and settings that expand into runs."""

    name: str = Field(description="name of the grid, in commands and in tables")
    description: str = Field("", description="what the grid is for")
    backbones: Backbones = Field(
        description="short names or timm models; {NAME: {argument: value}} with arguments",
    )
    datasets: Datasets = Field(
        description="known datasets, or folders of images by a path with a slash",
    )
    heads: Heads | None = Field(
        None,
        description="auxiliary heads; {NAME: {parameter: value}} with parameters",
    )
    seeds: Seeds = Field(
        default_factory=list,
        description="count n (seeds 0…n-1), list, or {range: [first, end]} (end excluded)",
    )
    variance: Variance | None = Field(
        None,
        description="streams of randomness to vary separately, in place of seeds",
    )
    recipe: str | None = Field(
        None,
        description="name of the recipe, see `vtjobs catalog`; NAME-fast: the same in fp16",
    )
    train: Train = Field(default_factory=dict, description="changes to the recipe")
    recipes: Recipes = Field(
        default_factory=dict,
        description="your own recipes by name: {extends: deit, lr: 0.0005}, or a file with that",
    )
    data: Data = Field(Data(), description="validation split and additional evaluation sets")
    axes: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="additional axes by dotted path, such as {head.drloc.pairs: [32, 64]}",
    )
    variants: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.+-]{0,63}$")], dict[str, Any]
    ] = Field(
        default_factory=dict,
        description=(
            "axis of named sets of changes, such as {no-mixup: {train.mixup: 0.0}}; "
            "extends: NAME begins with those of an earlier one"
        ),
    )
    exclude: list[dict[str, Any]] = Field(
        default_factory=list,
        description="combinations to leave out, such as {backbone: resnet50, head: relvit}",
    )
    include: list[dict[str, Any]] = Field(
        default_factory=list,
        description="further combinations, with backbone, dataset, head and seed",
    )
    overrides: list[Override] = Field(
        default_factory=list,
        description="changes to the settings of some combinations; a later one wins",
    )
    stages: list[Stage] = Field(
        default_factory=list,
        description="training stages, such as pre-training and fine-tuning",
    )
    compare: Compare | None = Field(
        None,
        description="how the heads will be compared; changes after runs have started need --amend",
    )
    resources: Resources = Field(Resources(), description="resources of each run")
    retries: int = Field(
        3,
        ge=0,
        le=100,
        description=(
            "number of failed attempts after which a run is given up; "
            "preemption, walltime and node failure do not count"
        ),
    )
    checkpoint_every: Duration = Field(
        600,
        description="time between checkpoints, such as 10m",
    )
    evaluate_every: int = Field(
        1,
        ge=1,
        description="epochs between evaluations; the last epoch is always evaluated",
    )
    record_depth: bool = Field(
        False,
        description=(
            "with each evaluation, record what every block adds to its input: metrics of training"
            " such as depth_mixing_01"
        ),
    )
    max_running: int | None = Field(
        None,
        ge=1,
        description="maximum number of runs that are queued or running; null: no maximum",
    )
    halve_micro_batch: bool = Field(
        False,
        description="retry once with half the micro-batch after running out of memory",
    )
    backend: (
        Annotated[
            Annotated[Literal[tuple(_BACKENDS)], Tag("<name>")]  # type: ignore[valid-type]
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
        named = [name for name in _BACKENDS if getattr(self.backend, name, None) is not None]
        return named[0] if len(named) == 1 else default

    def site(self, name: str) -> dict[str, Any]:
        """Return the settings that the grid gives a backend, those that it sets alone."""
        found: SiteSettings | None = (
            None if isinstance(self.backend, str) else getattr(self.backend, name, None)
        )
        return found.model_dump(mode="json", exclude_unset=True) if found is not None else {}


# Key -> its dotted path, for a key that stands in the wrong place.
HOMES = {
    name: f"{part}.{name}"
    for part, model in (
        ("compare", Compare),
        ("data", Data),
        ("resources", Resources),
        ("train", Recipe),
    )
    for name in model.model_fields
} | {name: name for name in Grid.model_fields}

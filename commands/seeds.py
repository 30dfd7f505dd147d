"""How many seeds a goal needs, and their submission."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..jobs.errors import BadInput, SeedsMissing, VtjobsError
from .options import (
    BackendName,
    DryRun,
    Json,
    NoDataCheck,
    Selector,
    Set,
    Source,
    Workspace,
    look_into,
    make_pass,
    open_workspace,
    say_imported,
    selection,
)

if TYPE_CHECKING:
    from ..analysis.findings.cell import Cell
    from ..analysis.findings.plan import ComparisonPlan
    from ..analysis.findings.power import Goal, Need, Needs
    from ..jobs.workspace.grid_settings import GridSettings
    from ..orchestrator.loop.context import Context

EXPLORATORY = (
    "seeds that are added after results make the declared comparison exploratory. To add seeds and"
    " keep it, declare looks or anytime beforehand"
)
HalfWidth = Annotated[
    float | None,
    typer.Option(help="Target half-width of each mean's 95 % CI, in the metric's unit."),
]
Effect = Annotated[
    float | None,
    typer.Option(
        help=(
            "Smallest difference to detect with 80 % power, in the metric's unit "
            "[default: the grid's compare.min_effect, if declared]."
        )
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        help=(
            "Equivalence margin ± within which to show a tie with 80 % power, if there is no "
            "difference [default: the grid's compare.margin, if declared without min_effect]."
        )
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(help="Metric, e.g. top1 or loss [default: as declared, else top1]."),
]


class Wanted(NamedTuple):
    """What seeds are asked for on the command line; one goal at most."""

    half_width: float | None
    effect: float | None
    margin: float | None
    metric: str | None

    @property
    def goals(self) -> dict[str, float | None]:
        """Option -> its value."""
        return {
            "--half-width": self.half_width,
            "--effect": self.effect,
            "--margin": self.margin,
        }


def power(
    selector: Selector = None,
    half_width: HalfWidth = None,
    effect: Effect = None,
    margin: Margin = None,
    metric: Metric = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Exit code 8 while needed seeds are not submitted, 1 if the need is unknown.",
        ),
    ] = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """List the additional seeds each cell needs and their cost.

    The goal is --half-width, --effect, --margin, or what the grid's `compare` declares: its next
    interim analysis (`looks`), its `min_effect` or its `margin`. The cost is estimated from past
    runs of the same cells. For a single grid, the command that submits the seeds is printed.
    """
    from ..jobs.values import changed
    from .printing import terminal

    context = look_into(workspace)
    wanted = Wanted(half_width=half_width, effect=effect, margin=margin, metric=metric)
    chosen = selection(selector, default_all=True)
    document = _needs(context, chosen, wanted)
    grids = _that_can_grow(context, selector)
    if document.runs and selector and grids:
        goal = wanted.goals | {"--metric": metric}
        options = [f"{name} {value}" for name, value in goal.items() if value is not None]
        command = f"vtjobs topup {' '.join([selector[0], *options])}{context.where}"
        document = changed(document, command=command)
    if as_json:
        terminal.emit_json(document)
    else:
        _show(document)
        if document.command and not all(map(_allows_seeds, grids)):
            terminal.say(f"warning: {EXPLORATORY}")
        say_imported(context, chosen)
    if check and (code := _unmet(document)):
        raise typer.Exit(code)


def _that_can_grow(context: "Context", words: list[str] | None) -> "list[GridSettings]":
    """Return the grid that a single word means, if vtjobs can train more seeds of it."""
    from ..db.engine import reading
    from ..db.queries import grid_settings
    from ..db.selected import resolve_grids

    if words is None or len(words) != 1:
        return []
    with reading(context.ledger.engine) as connection:
        found = grid_settings(connection, set(resolve_grids(connection, words[0])))
    return [settings for settings in found.values() if settings.imported is None]


def _allows_seeds(settings: "GridSettings") -> bool:
    """Whether more seeds after results keep what the grid declared, or it declared nothing."""
    compare = settings.compare
    return compare is None or bool(compare.looks) or compare.anytime


def _unmet(document: "Needs") -> int:
    """Return the exit code of a goal that is not met, or 0."""
    unknown = [need for need in document.cells if need.unknown]
    return SeedsMissing.exit_code if document.runs else VtjobsError.exit_code if unknown else 0


def topup(
    source: Source,
    half_width: HalfWidth = None,
    effect: Effect = None,
    margin: Margin = None,
    metric: Metric = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait until the runs have ended; exit code 4 if any did not complete.",
        ),
    ] = False,
    dry_run: DryRun = False,
    settings: Set = None,
    backend: BackendName = None,
    no_data_check: NoDataCheck = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Submit the additional seeds that `power` says a grid needs.

    The source may also be the name or id of a submitted grid. Only cells that need seeds get them.
    """
    from ..jobs.documents import to_plain
    from ..orchestrator.requests.declarations import refusal
    from ..orchestrator.requests.imported_check import imported_seeds
    from ..orchestrator.requests.submit import submit
    from ..orchestrator.requests.summary import summary
    from ..orchestrator.requests.topup import chooser, left_out, seeds_of_cells
    from .printing import terminal
    from .submit import check_data, prepared, submitted, to_retry
    from .waiting import wait_for

    given, (source, at) = source, _file_of(source, workspace)
    backend = backend or at
    own = prepared(workspace, source, settings, None, backend)
    if own.grid.streams:
        raise BadInput(
            f"{source}: the design of `variance` sets the number of runs per cell. Give its streams"
            " more values instead"
        )
    context = open_workspace(workspace)
    make_pass(context, start=False)
    wanted = Wanted(half_width=half_width, effect=effect, margin=margin, metric=metric)
    needs = _needs(context, selection([own.grid.name if source == given else given]), wanted)
    failed = _ended_without_a_result(context, needs)
    sizes = {need.cell_id: need.planned + (need.more or 0) for need in needs.cells}
    known = {need.cell_id: need.seeds for need in needs.cells}
    taken = imported_seeds(context, known)
    target = seeds_of_cells(own.expansion, sizes, known, stored=source != given, taken=taken)

    # With the file's own seeds: its rules may name any of them.
    every = sorted({*own.grid.seeds, *(seed for seeds in target.values() for seed in seeds)})
    changes = [*(settings or []), f"seeds={every}"]
    wider = prepared(workspace, source, changes, None, backend, choose=chooser(target))
    _check_added(source, left_out(wider.expansion, target))
    if not no_data_check:
        check_data(workspace, wider)
    if refusal(context, wider.frozen):
        terminal.say(f"warning: {EXPLORATORY}")
    if dry_run:
        document = summary(context, wider)
    else:
        document = submit(context, wider, counted=_goal_of(needs))
        make_pass(context)
    if as_json:
        terminal.emit_json(to_plain(document) | {"needs": to_plain(needs)})
    else:
        _show(needs)
    terminal.say(submitted(document))
    if not dry_run and (again := to_retry(context, document)):
        terminal.say(again)
    if wait and not dry_run:
        wait_for(context, [document.grid_id], told=failed)


def _check_added(source: str, lost: list[str]) -> None:
    """Refuse seeds that the grid's own rules leave out.

    Args:
        source: what the user called the grid.
        lost: the first seeds of each cell that are not there, as users read them.
    """
    if lost:
        message = f"cannot add {', '.join(lost[:5])}: exclude, include or overrides names that seed"
        raise BadInput(f"{source}: {message}. Add the seeds to the grid file by hand")


def _ended_without_a_result(context: "Context", needs: "Needs") -> set[str]:
    """Return the runs of cells that failed, diverged or were cancelled before more seeds came."""
    from ..db import lookups
    from ..db.engine import reading

    with reading(context.ledger.engine) as connection:
        return lookups.ended_without_result(connection, [need.cell_id for need in needs.cells])


def _goal_of(needs: "Needs") -> str:
    """Return what seeds were added for, as the declaration keeps it."""
    if needs.half_width is not None:
        return f"topup for means within ±{needs.half_width:g}"
    if needs.effect is not None:
        return f"topup for a difference of {needs.effect:g}"
    return f"topup for a tie within ±{needs.margin:g}" if needs.margin is not None else "topup"


def _file_of(source: str, workspace: str | None) -> tuple[str, str | None]:
    """Return the file of a grid, and where it went.

    As given, or as the workspace keeps a grid of this name or id.
    """
    from ..db.engine import reading
    from ..db.queries import grid_settings
    from ..db.selected import resolve_grids

    if Path(source).suffix in (".yaml", ".yml") or Path(source).is_file():
        return source, None
    context = open_workspace(workspace)
    with reading(context.ledger.engine) as connection:
        found = resolve_grids(connection, source)
        settings = grid_settings(connection, set(found))
    if not found:
        return source, None
    if settings[found[0]].imported is not None:
        raise BadInput(f"{source} was imported: vtjobs has nothing to train more seeds from")
    return str(context.workspace.grid(found[0]) / "grid.yaml"), settings[found[0]].backend


def _needs(context: "Context", chosen: Any, wanted: "Wanted") -> "Needs":
    from ..analysis.findings.cells import planned
    from ..analysis.findings.power import with_hours
    from ..db import pace, queries
    from ..db.engine import reading

    plan, goal = _goal(context, chosen, wanted)
    cells = planned(context.ledger, chosen, plan, with_specs=True)
    needs, goal = _counted(cells, plan, goal)
    with reading(context.ledger.engine) as connection:
        seconds = pace.seconds_per_run(connection)
        rows = queries.list_runs(connection, chosen)
        grids = queries.grid_settings(connection, {row.grid_id for row in rows})
    gpus = {row.cell_id: grids[row.grid_id].resources.gpus for row in rows}
    return with_hours(needs, goal, seconds, gpus)


def _goal(context: "Context", chosen: Any, wanted: "Wanted") -> tuple["ComparisonPlan", "Goal"]:
    """Return how the cells are compared, and what seeds are needed for."""
    from ..analysis.findings.declared import settle
    from ..analysis.findings.power import Goal
    from ..jobs.values import changed

    asked = {name: value for name, value in wanted.goals.items() if value is not None}
    if len(asked) > 1:
        raise BadInput(f"{' and '.join(asked)} are different goals. Give one of them")
    for option, value in asked.items():
        if not 0 < value < float("inf"):
            raise BadInput(f"{option} {value:g}: a number above 0, in the metric's unit")
    given = dict.fromkeys(("test", "alpha", "set")) | {"metric": wanted.metric}
    # As it is declared, but for the goal: it decides nothing of how the cells are compared.
    plan = settle(context.ledger, chosen, given)
    plan = changed(
        plan,
        min_effect=wanted.effect or plan.min_effect,
        margin=wanted.margin or plan.margin,
    )
    if wanted.margin is not None and plan.anytime:
        raise BadInput("--margin: ties are tested only once, so not with anytime. Remove --margin")
    goal = Goal(metric=plan.metric, set=plan.set)
    if wanted.half_width is not None:
        return plan, changed(goal, half_width=wanted.half_width)
    if wanted.effect is None and wanted.margin is None and plan.looks:
        return plan, changed(goal, looks=plan.looks)
    if wanted.margin is None and plan.min_effect is not None:
        return plan, changed(goal, effect=plan.min_effect)
    if plan.margin is not None:
        return plan, changed(goal, margin=plan.margin)
    raise BadInput(
        "no goal: give --half-width, --effect or --margin, or declare compare: {min_effect: …} in"
        " the grid"
    )


def _counted(
    cells: "list[Cell]", plan: "ComparisonPlan", goal: "Goal"
) -> "tuple[list[Need], Goal]":
    from ..analysis.findings import power
    from ..jobs.values import changed

    if goal.half_width is not None:
        return power.for_precision(cells, goal.half_width), goal
    if goal.looks:
        return power.for_looks(cells, plan), goal
    if goal.margin is not None:
        return power.for_margin(cells, plan), changed(goal, alpha=plan.alpha)
    alpha = min(power.strictest(cells, plan).values(), default=plan.alpha)
    return power.for_effect(cells, plan), changed(goal, alpha=alpha)


def _show(document: "Needs") -> None:
    from ..analysis.output import render
    from .printing.tables import print_table

    laid = render.of_needs(document)
    print_table(laid, "table", right=tuple(range(laid.labels, laid.labels + 5)))

"""A grid's study of its streams of randomness.

Its design, what came of it, and whether the streams are wired in.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...db import lookups, queries, records
from ...db.engine import reading
from ...db.ledger import Ledger
from ...jobs.documents import Document
from ...jobs.run.design import REPEAT, Design, StudyDesign, rows, seed_text
from ...jobs.run.selector import Selection
from ...jobs.run.spec import STREAMS, seeds_of
from ...jobs.run.states import RunState
from ...jobs.workspace.lineage import origin_of
from ...jobs.workspace.paths import RunFolder, Workspace
from ..stats.balance import whole_part
from ..stats.components import Arms, Components, arms, components


class Wiring(Document, frozen=True, kw_only=True):
    """Whether one stream of randomness decides what its value says."""

    stream: str
    """Of randomness."""
    values: int
    """Its different values in these runs."""
    fingerprints: int
    """Different fingerprints of what it decided; 0: it decides nothing in these runs."""
    wired: bool | None
    """One fingerprint for each value, and none twice; None without fingerprints."""


class Study(Document, frozen=True, kw_only=True, tag_field="design"):
    """A study of one cell's streams of randomness; `design` says which kind."""

    grid_id: str
    """Of the grid that asked for it."""
    metric: str
    """Of the scores."""
    vary: dict[str, int]
    """Stream -> number of its values."""
    ride: list[str]
    """Streams that are new in each combination."""
    n: int
    """Runs with a value."""
    used: int
    """Runs that were analysed."""
    left_out: dict[str, list[int]]
    """Stream -> values that were left out, so that the rest is complete."""
    planned: int
    """Runs of the design."""
    missing: list[str]
    """Runs without a value."""
    why_not: str
    """Why the variance cannot be split; empty: it can."""
    wiring: list[Wiring]
    """Whether each stream decides what its value says."""


class CrossedStudy(Study, frozen=True, kw_only=True, tag=Design.CROSSED.value):
    """Every combination of the values of the streams."""

    parts: Components | None
    """None where the variance cannot be split."""


class OrthogonalStudy(Study, frozen=True, kw_only=True, tag=Design.ORTHOGONAL.value):
    """Every pair of values of two streams once."""

    parts: Components | None
    """None where the variance cannot be split."""


class ArmsStudy(Study, frozen=True, kw_only=True, tag=Design.ONE_AT_A_TIME.value):
    """Each stream by itself, and all of them together."""

    parts: Arms | None
    """None where the runs cannot be compared."""


AnyStudy = CrossedStudy | OrthogonalStudy | ArmsStudy


def design_of(study: AnyStudy) -> str:
    """Return the name of a study's design."""
    return str(type(study).__struct_config__.tag)


def studies(
    ledger: Ledger, workspace: Workspace, selection: Selection, *, metric: str, set_name: str
) -> dict[str, list[AnyStudy]]:
    """Return cell -> its studies, for the selected cells that are part of any.

    Args:
        ledger: where the results are.
        workspace: where the runs have written what their streams decided.
        selection: of runs; a study is taken whole as soon as one of its runs is selected.
        metric: of the scores.
        set_name: that they were made on.
    """
    found: dict[str, list[AnyStudy]] = {}
    with reading(ledger.engine) as connection:
        chosen = [
            row for row in queries.list_runs(connection, selection) if row.streams is not None
        ]
        settings = queries.grid_settings(
            connection, lookups.all_grids_of(connection, [row.run_id for row in chosen])
        )
        for grid_id, one in sorted(settings.items()):
            variance = one.variance
            if variance is None or variance.design is Design.TOGETHER:
                continue
            members = queries.list_runs(connection, Selection(names=(grid_id,)))
            scores = {
                row.run_id: float(row.last)
                for row in queries.results_of(connection, [row.run_id for row in members])
                if row.metric == metric and row.set_name == set_name
            }
            mine_of: dict[str, list[records.RunRow]] = {}
            for row in members:
                mine_of.setdefault(row.cell_id, []).append(row)
            for cell_id in dict.fromkeys(row.cell_id for row in chosen if row.cell_id in mine_of):
                mine = mine_of[cell_id]
                prints = [(_streams(row), fingerprints(workspace.run(row.run_id))) for row in mine]
                found.setdefault(cell_id, []).append(
                    study(
                        variance,
                        mine,
                        scores,
                        grid_id=grid_id,
                        metric=metric,
                        wiring=wiring(prints),
                    )
                )
    return found


def study(
    variance: StudyDesign,
    members: Sequence[records.RunRow],
    scores: Mapping[str, float],
    *,
    grid_id: str,
    metric: str,
    wiring: list[Wiring],
) -> AnyStudy:
    """Return the components of one cell's study, or why there are none.

    Args:
        variance: as the grid has it.
        members: the runs of the cell.
        scores: run -> metric.
        grid_id: of the grid.
        metric: of the scores.
        wiring: of the streams in these runs.
    """
    vary = list(variance.vary)
    planned = rows(
        variance.design,
        variance.vary,
        hold=variance.hold,
        ride=variance.ride,
        repeat=variance.repeat,
    )
    done = {
        _key(_streams(row)): scores[row.run_id]
        for row in members
        if row.state == RunState.COMPLETED and row.run_id in scores
    }
    missing = [streams for streams in planned if _key(streams) not in done]
    kept: Sequence[Mapping[str, int]] = planned
    left_out: dict[str, list[int]] = {}
    why_not = ""
    if missing:
        rest = _without(members, missing, variance.design, vary, planned)
        if rest is None:
            # Means over what is left would mix the streams.
            why_not = _why_not(members, missing, len(planned))
        else:
            kept, left_out = rest
    facts: dict[str, Any] = {
        "grid_id": grid_id,
        "metric": metric,
        "vary": {stream: len(values) for stream, values in variance.vary.items()},
        "ride": variance.ride,
        "n": len(planned) - len(missing),
        "used": len(planned) - len(missing) if why_not else len(kept),
        "left_out": left_out,
        "planned": len(planned),
        "missing": [seed_text(0, streams) for streams in missing],
        "why_not": why_not,
        "wiring": wiring,
    }
    values = [] if why_not else [(streams, done[_key(streams)]) for streams in kept]
    if variance.design is Design.ONE_AT_A_TIME:
        return ArmsStudy(**facts, parts=arms(vary, values) if values else None)
    kind = CrossedStudy if variance.design is Design.CROSSED else OrthogonalStudy
    return kind(**facts, parts=components(variance.design, vary, values) if values else None)


def _without(
    members: Sequence[records.RunRow],
    missing: Sequence[Mapping[str, int]],
    design: Design,
    vary: Sequence[str],
    planned: Sequence[Mapping[str, int]],
) -> tuple[list[Mapping[str, int]], dict[str, list[int]]] | None:
    """Return the part of a study with holes that has none.

    A diverged run is an outcome, and not left out.
    """
    keys = {_key(streams) for streams in missing}
    if any(row.state == RunState.DIVERGED and _key(_streams(row)) in keys for row in members):
        return None
    return whole_part(design, vary, planned, [_key(streams) not in keys for streams in planned])


def _why_not(
    members: Sequence[records.RunRow], missing: Sequence[Mapping[str, int]], planned: int
) -> str:
    keys = {_key(streams) for streams in missing}
    states = Counter(row.state for row in members if _key(_streams(row)) in keys)
    if diverged := states[RunState.DIVERGED]:
        return (
            f"{diverged} of {planned} runs diverged without a score: the variance cannot be split"
        )
    if scoreless := states[RunState.COMPLETED]:
        return f"{scoreless} of {planned} runs completed without this metric"
    return f"{len(missing)} of {planned} runs are missing; the variance is split once they complete"


def _streams(row: records.RunRow) -> dict[str, int]:
    return row.streams if row.streams is not None else seeds_of(row.seed)


def _key(streams: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(streams.get(name, 0) for name in (*STREAMS, REPEAT))


def fingerprints(folder: RunFolder) -> dict[str, str | None]:
    """Return what a run's streams decided, stream -> hash, or nothing where it has not said so."""
    origin = origin_of(folder)
    return {} if origin is None else origin.streams


def wiring(
    runs: Sequence[tuple[Mapping[str, int], Mapping[str, str | None]]],
) -> list[Wiring]:
    """Compare the values of each stream with what it decided.

    Runs without fingerprints are left out.

    Args:
        runs: stream -> value, and stream -> hash, of each run.
    """
    known = [(streams, prints) for streams, prints in runs if prints]
    found = []
    for stream in STREAMS:
        pairs = {(streams[stream], prints.get(stream)) for streams, prints in known}
        values, hashes = {value for value, _ in pairs}, {one for _, one in pairs if one is not None}
        found.append(
            Wiring(
                stream=stream,
                values=len(values),
                fingerprints=len(hashes),
                wired=len(pairs) == len(values) == len(hashes) if hashes else None,
            )
        )
    return found
